// Package preflight runs checks on a pass and says what they found, as text, JSON, SARIF or JUnit.
//
// Belongs here: check (the contract of checks) and check/TOPIC (the checks themselves). A new check is a
// file and a page of Markdown in its topic's package, and one line in the list of that package.
//
// Does not belong here: what a network is (network), and what a plan refuses because it cannot be made
// (change).
//
// Door: preflight, check.
// Tests: check/checktest.
package preflight
