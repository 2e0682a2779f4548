"""Questions and actions that Pulumi has no words for, asked of Azure Resource Manager itself."""
