package preflight

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
)

// samples are results with everything in them, and with nothing.
func samples() map[string]finding.Result {
	return map[string]finding.Result{"all": run(Options{Accept: map[string]string{"a/one": "ticket 42"}}),
		"fine": run(Options{Only: []string{"c"}}), "nothing": {}}
}

// sarifRules are what the specification of SARIF 2.1.0 (OASIS) says of the properties that are used, in the words of
// JSON Schema: of a log (3.13), a run (3.14), a driver (3.19), a rule (3.49), a result (3.27), a logical location
// (3.33), a suppression (3.35), an invocation (3.20) and a notification (3.58). A property that is not among them is
// refused, so that nobody adds one that SARIF does not have.
const sarifRules = `{
	"$defs": {
		"text": {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "minLength": 1}, "markdown": {"type": "string"}}, "additionalProperties": false},
		"level": {"enum": ["none", "note", "warning", "error"]},
		"uri": {"type": "string", "pattern": "^[a-z]+://[^ ]+$"},
		"id": {"type": "string", "minLength": 1},
		"rule": {"type": "object", "required": ["id"], "additionalProperties": false, "properties": {
			"id": {"$ref": "#/$defs/id"}, "shortDescription": {"$ref": "#/$defs/text"}, "help": {"$ref": "#/$defs/text"}, "helpUri": {"$ref": "#/$defs/uri"}}},
		"driver": {"type": "object", "required": ["name"], "additionalProperties": false, "properties": {
			"name": {"$ref": "#/$defs/id"}, "version": {"$ref": "#/$defs/id"}, "informationUri": {"$ref": "#/$defs/uri"},
			"rules": {"type": "array", "uniqueItems": true, "items": {"$ref": "#/$defs/rule"}}}},
		"place": {"type": "object", "additionalProperties": false, "properties": {"name": {"type": "string"}, "fullyQualifiedName": {"type": "string"}, "kind": {"type": "string"}}},
		"suppression": {"type": "object", "required": ["kind"], "additionalProperties": false, "properties": {
			"kind": {"enum": ["inSource", "external"]}, "justification": {"type": "string"}}},
		"result": {"type": "object", "required": ["message"], "additionalProperties": false, "properties": {
			"ruleId": {"$ref": "#/$defs/id"}, "ruleIndex": {"type": "integer", "minimum": -1}, "level": {"$ref": "#/$defs/level"}, "message": {"$ref": "#/$defs/text"},
			"locations": {"type": "array", "items": {"type": "object", "additionalProperties": false, "properties": {
				"logicalLocations": {"type": "array", "uniqueItems": true, "items": {"$ref": "#/$defs/place"}}}}},
			"suppressions": {"type": "array", "uniqueItems": true, "items": {"$ref": "#/$defs/suppression"}},
			"properties": {"type": "object"}, "partialFingerprints": {"type": "object", "additionalProperties": {"type": "string"}}}},
		"notification": {"type": "object", "required": ["message"], "additionalProperties": false, "properties": {
			"level": {"$ref": "#/$defs/level"}, "message": {"$ref": "#/$defs/text"},
			"associatedRule": {"type": "object", "required": ["id"], "additionalProperties": false, "properties": {"id": {"$ref": "#/$defs/id"}}}}}
	},
	"type": "object", "required": ["version", "runs"], "additionalProperties": false,
	"properties": {
		"$schema": {"$ref": "#/$defs/uri"}, "version": {"const": "2.1.0"},
		"runs": {"type": "array", "items": {"type": "object", "required": ["tool"], "additionalProperties": false, "properties": {
			"tool": {"type": "object", "required": ["driver"], "additionalProperties": false, "properties": {"driver": {"$ref": "#/$defs/driver"}}},
			"results": {"type": "array", "items": {"$ref": "#/$defs/result"}},
			"invocations": {"type": "array", "items": {"type": "object", "required": ["executionSuccessful"], "additionalProperties": false, "properties": {
				"executionSuccessful": {"type": "boolean"}, "toolExecutionNotifications": {"type": "array", "items": {"$ref": "#/$defs/notification"}}}}}}}}
	}
}`

// TestSARIFByItsRules: what is written is as the specification says, and what is not so is refused.
func TestSARIFByItsRules(t *testing.T) {
	decode := func(text string) any {
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("sarif", decode(sarifRules)); err != nil {
		t.Fatal(err)
	}
	rules, err := compiler.Compile("sarif")
	if err != nil {
		t.Fatal(err)
	}
	for name, result := range samples() {
		var text bytes.Buffer
		if err := SARIF(&text, result, sample(), "v1"); err != nil {
			t.Fatal(err)
		}
		if err := rules.Validate(decode(text.String())); err != nil {
			t.Errorf("%s: %v\n%s", name, err, text.String())
		}
		if name != "all" {
			continue
		}
		for what, bad := range map[string]string{
			`"level": "error"`: `"level": "fatal"`, `"version": "2.1.0"`: `"version": "2.2.0"`,
			`"ruleIndex": 0`: `"ruleIndex": -2`, `"informationUri": "https`: `"informationUri": "no uri: https`,
			`"kind": "external"`: `"kind": "elsewhere"`, `"ruleId"`: `"rule"`, `"driver"`: `"pilot"`,
			`"executionSuccessful"`: `"successful"`, `"text": "it `: `"words": "it `,
		} {
			if !strings.Contains(text.String(), what) {
				t.Errorf("%s is not in it", what)
			} else if rules.Validate(decode(strings.Replace(text.String(), what, bad, 1))) == nil {
				t.Errorf("the rules let %s through", bad)
			}
		}
	}
}

// TestSARIFHangsTogether holds what no schema can say: results and notifications name rules that are there, at their
// places, and once each; every result says where it is, and is told from every other one by its fingerprint.
func TestSARIFHangsTogether(t *testing.T) {
	for name, result := range samples() {
		var text bytes.Buffer
		if err := SARIF(&text, result, sample(), "v1"); err != nil {
			t.Fatal(err)
		}
		var log sarifLog
		if err := json.Unmarshal(text.Bytes(), &log); err != nil {
			t.Fatal(err)
		}
		r := log.Runs[0]
		ids, prints := []string{}, map[string]bool{}
		for _, rule := range r.Tool.Driver.Rules {
			if help, err := url.Parse(rule.HelpURI); slices.Contains(ids, rule.ID) || err != nil || !help.IsAbs() {
				t.Errorf("%s: the rule %s is there twice, or leads to %s", name, rule.ID, rule.HelpURI)
			}
			ids = append(ids, rule.ID)
		}
		for i, one := range r.Results {
			if one.RuleIndex >= len(ids) || ids[one.RuleIndex] != one.RuleID {
				t.Errorf("%s: result %d says that rule %d is %s", name, i, one.RuleIndex, one.RuleID)
			}
			where := one.Locations[0].LogicalLocations[0]
			if where.FullyQualifiedName == "" || one.Message.Text == "" || len(one.Fingerprints) != 1 ||
				prints[fmt.Sprint(one.Fingerprints)] {
				t.Errorf("%s: result %d is without a place or words, or looks like another: %+v", name, i, one)
			}
			prints[fmt.Sprint(one.Fingerprints)] = true
			if accepted := result.Findings[i].Accepted; (accepted != "") != (len(one.Suppressions) > 0) {
				t.Errorf("%s: result %d is accepted by %q, and suppressed by %v", name, i, accepted, one.Suppressions)
			}
		}
		if len(r.Results) != len(result.Findings) || len(r.Invocations[0].Notifications) != len(result.NotChecked) {
			t.Errorf("%s: %d results of %d findings, %d notifications of %d checks that were not made",
				name, len(r.Results), len(result.Findings), len(r.Invocations[0].Notifications), len(result.NotChecked))
		}
		for _, n := range r.Invocations[0].Notifications {
			if !slices.Contains(ids, n.AssociatedRule.ID) {
				t.Errorf("%s: a notification is about %s, which is no rule", name, n.AssociatedRule.ID)
			}
		}
	}
}

// TestJUnitAddsUp: counts are those of the cases, a case has one outcome and one name, and what stands in it is what
// XML may hold.
func TestJUnitAddsUp(t *testing.T) {
	all := samples()
	odd := all["all"]
	odd.Findings = slices.Clone(odd.Findings)
	for i := range odd.Findings {
		odd.Findings[i].Message += "\x00\x1b]]> <&\xff"
	}
	all["odd letters"] = odd
	for name, result := range all {
		var text bytes.Buffer
		if err := JUnit(&text, result, sample()); err != nil {
			t.Fatal(err)
		}
		var suites junitSuites
		if err := xml.Unmarshal(text.Bytes(), &suites); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, text.String())
		}
		suite := suites.Suites[0]
		var names []string
		failures, skipped := 0, 0
		for _, one := range suite.Cases {
			if one.Failure != nil {
				failures++
			}
			if one.Skipped != nil {
				skipped++
			}
			if one.Failure != nil && one.Skipped != nil || slices.Contains(names, one.Name) ||
				!strings.HasPrefix(one.Class, "theseus.") {
				t.Errorf("%s: %+v", name, one)
			}
			names = append(names, one.Name)
		}
		if len(suites.Suites) != 1 || suite.Tests != len(sample()) || len(names) != suite.Tests ||
			suite.Failures != failures || suite.Skipped != skipped || suite.Errors != 0 {
			t.Errorf("%s: it says %d tests, %d failures, %d skipped, and has %d, %d, %d",
				name, suite.Tests, suite.Failures, suite.Skipped, len(names), failures, skipped)
		}
		blocks := map[string]bool{}
		for _, f := range result.Findings {
			if f.Severity == finding.Block && f.Accepted == "" {
				blocks[f.ID] = true
			}
		}
		if failures != len(blocks) {
			t.Errorf("%s: %d failures, and %d checks that block", name, failures, len(blocks))
		}
	}
}
