"""The web page of the service: rendered here, kept up to date by server-sent events; the browser proves verdicts.

It shows what the API tells anybody. What needs a token (posting, steering, the operator's page) is asked for by the
viewer's browser with the token that the viewer enters, so the service keeps no cookie and trusts no form.
"""
