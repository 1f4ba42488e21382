// Package preflight runs checks on a pass and renders their findings as text, JSON, SARIF or JUnit.
//
// Belongs here: check (the contract of checks) and check/TOPIC (the checks themselves). A new check is a
// file and a page of Markdown in its topic's package, and one line in the list of package preflight.
//
// Does not belong here: knowledge about a network (network), and the reasons why a plan cannot be made (change).
//
// Door: preflight, check.
// Tests: check/checktest.
package preflight
