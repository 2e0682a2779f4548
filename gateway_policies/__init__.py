"""The gateway's policies, as XML and as rules about XML. Pure: no Pulumi."""
