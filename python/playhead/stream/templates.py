"""Match a link to the listed URI template that reads ranges of it.

Pure: the listed templates are an argument.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mcp.shared.uri_template import InvalidUriTemplate, UriTemplate

RangeVariables = tuple[str, str]
"""The names of a template's two variables for a range, such as `("start", "end")`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateMatch:
    """A listed template that fits a link, with the values of its variables apart from the range."""

    template: UriTemplate
    values: Mapping[str, str | Sequence[str]]
    variables: RangeVariables
    reason: str
    """Why it was matched, as a clause: `the server lists the template 'x://{a}{?start,end}'`."""

    def expand(self, first: int, second: int) -> str:
        """Return the URI with the range; values are percent-encoded by RFC 6570, so reserved characters of a
        URL inside a URL survive."""
        name_of_first, name_of_second = self.variables
        return self.template.expand({**self.values, name_of_first: str(first), name_of_second: str(second)})


def match_template(
    templates: Sequence[str],
    *,
    uri: str,
    url: str | None,
    extra: Mapping[str, object],
    range_variables: Sequence[RangeVariables],
) -> TemplateMatch | None:
    """Return the first of the listed `templates` that takes a range and fits the link `uri`, if any.

    `url` is the URL in the link's description, `extra` are further values by the name of their variable.
    `range_variables` are the accepted pairs of names for a range, in the order of preference.
    """
    for text in templates:
        try:
            template = UriTemplate.parse(text)
        except InvalidUriTemplate:
            continue  # an invalid template, listed for something else
        for variables in range_variables:
            values = _values(template, variables, uri=uri, url=url, extra=extra)
            if values is not None:
                reason = f"the server lists the template {text!r}"
                return TemplateMatch(template=template, values=values, variables=variables, reason=reason)
    return None


def _values(
    template: UriTemplate,
    range_variables: RangeVariables,
    *,
    uri: str,
    url: str | None,
    extra: Mapping[str, object],
) -> dict[str, str | Sequence[str]] | None:
    """Return the template's other variables for this resource; None if it is for another resource."""
    names = set(template.variable_names)
    of_range = set(range_variables)
    if not names >= of_range:
        return None
    values: dict[str, str | Sequence[str]] = {}
    if uri not in {str(template), template.expand({})}:
        matched = template.match(uri)
        if matched is None:
            return None
        values.update(matched)
    if url is not None and "url" in names:
        values.setdefault("url", url)
    values.update({name: str(value) for name, value in extra.items() if name in names})
    # An unknown query variable may be left out (RFC 6570, 2.3). A path without its part, or a URL reader
    # without a URL, is another resource.
    optional = set(template.query_variable_names) - {"url"}
    optional |= {variable.name for variable in template.variables if variable.operator in {"?", "&"}} - {
        "url"
    }
    if names - of_range - optional - set(values):
        return None
    return {name: value for name, value in values.items() if name not in of_range}
