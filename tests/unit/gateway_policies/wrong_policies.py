"""Policies that API Management refuses by their elements and attributes, each with what is said of it."""

RETRY = '<retry condition="@(true)" count="1" interval="{}"{}>{}</retry>'
TOKENS = '<llm-token-limit counter-key="a" tokens-per-minute="1" {}/>'
JWT = '<validate-jwt header-name="Authorization">{}</validate-jwt>'
WRONG = {
    "an unknown element": ("<lm-token-limit />", "<lm-token-limit> is not a policy of API Management"),
    "an unknown element in a choice": (
        '<choose><when condition="@(true)"><teleport /></when></choose>',
        "<teleport> is not a policy of API Management",
    ),
    "an unknown attribute": (
        '<rate-limit calls="1" renewal-period="60" per="x" />',
        "<rate-limit> has no attribute 'per'; allowed: calls, renewal-period",
    ),
    "a retry without interval": (
        '<retry condition="@(true)" count="1" />',
        "<retry> lacks the required attribute 'interval'",
    ),
    "a retry that never counts": (
        '<retry condition="@(true)" count="0" interval="1" />',
        "count '0'; allowed: a value",
    ),
    "a wrong number": (
        RETRY.format("soon", "", ""),
        "interval 'soon'; allowed: a value of nonNegativeInteger, or an exp",
    ),
    "a wrong flag": (
        RETRY.format(1, ' first-fast-retry="yes"', ""),
        "first-fast-retry 'yes'; allowed: a value of boolean",
    ),
    "an unknown policy in a retry": (RETRY.format(1, "", "<again />"), "<again> is not a policy of API Management"),
    "no estimate of a prompt": (
        TOKENS.format(""),
        "<llm-token-limit> lacks the required attribute 'estimate-prompt-tokens'",
    ),
    "a computed estimate": (
        TOKENS.format('estimate-prompt-tokens="@(true)" '),
        "estimate-prompt-tokens '@(true)'; allowed: a value of boolean",
    ),
    "a period in small letters": (
        TOKENS.format('estimate-prompt-tokens="false" token-quota="9" token-quota-period="monthly" '),
        "token-quota-period 'monthly'; allowed: Indefinite, Hourly, Daily, Weekly, Monthly, Yearly",
    ),
    "a period in a wrong place": (
        '<rate-limit calls="1" renewal-period="Monthly" />',
        "renewal-period 'Monthly'; allowed: a value of int",
    ),
    "a wrong choice": (
        '<set-header name="a" exists-action="replace" />',
        "exists-action 'replace'; allowed: override, append",
    ),
    "a header without a name": ("<set-header />", "<set-header> lacks the required attribute 'name'"),
    "text where elements are": (
        '<set-header name="a">x</set-header>',
        "<set-header> can't contain text; allowed inside: value",
    ),
    "text in a choice": ('<choose><when condition="true">x</when></choose>', "<when> can't contain text"),
    "a child that is not one": (
        "<ip-filter><adress>a</adress></ip-filter>",
        "<ip-filter> can't contain <adress>; allowed",
    ),
    "a child that is missing": ("<cors />", "<cors> needs <allowed-origins> inside"),
    "a choice of nothing": ("<choose />", "<choose> needs <when> inside"),
    "a filter of nothing": (
        '<ip-filter action="allow" />',
        "<ip-filter> is empty; allowed inside: address, address-range",
    ),
    "a child that stands twice": (
        JWT.format("<audiences /><audiences />"),
        "<validate-jwt> has <audiences> 2 times; allowed: once",
    ),
    "children in another order": (
        JWT.format("<issuers><issuer>i</issuer></issuers><audiences><audience>a</audience></audiences>"),
        "<audiences> stands in the wrong place; the order in <validate-jwt> is openid-config",
    ),
    "a response in another order": (
        '<return-response><set-body>x</set-body><set-status code="401" /></return-response>',
        "<set-status> stands in the wrong place",
    ),
    "a policy as a child, with a fault": (
        "<return-response><set-header /></return-response>",
        "<set-header> lacks the required attribute 'name'",
    ),
}
