package preflight

import (
	"io"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

// The part of SARIF 2.1.0 that preflight writes.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool        sarifTool         `json:"tool"`
		Results     []sarifResult     `json:"results"`
		Invocations []sarifInvocation `json:"invocations"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name           string      `json:"name"`
		Version        string      `json:"version,omitempty"`
		InformationURI string      `json:"informationUri"`
		Rules          []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID               string    `json:"id"`
		ShortDescription sarifText `json:"shortDescription"`
		Help             sarifHelp `json:"help"`
		HelpURI          string    `json:"helpUri"`
	}
	sarifHelp struct {
		Text     string `json:"text"`
		Markdown string `json:"markdown"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID       string             `json:"ruleId"`
		RuleIndex    int                `json:"ruleIndex"`
		Level        string             `json:"level"`
		Message      sarifText          `json:"message"`
		Locations    []sarifLocation    `json:"locations"`
		Suppressions []sarifSuppression `json:"suppressions,omitempty"`
		Properties   map[string]any     `json:"properties,omitempty"`
		Fingerprints map[string]string  `json:"partialFingerprints"`
	}
	sarifLocation struct {
		LogicalLocations []sarifLogical `json:"logicalLocations"`
	}
	sarifLogical struct {
		Name               string `json:"name"`
		FullyQualifiedName string `json:"fullyQualifiedName"`
		Kind               string `json:"kind"`
	}
	sarifSuppression struct {
		Kind          string `json:"kind"`
		Justification string `json:"justification"`
	}
	sarifInvocation struct {
		ExecutionSuccessful bool                `json:"executionSuccessful"`
		Notifications       []sarifNotification `json:"toolExecutionNotifications"`
	}
	sarifNotification struct {
		Level          string          `json:"level"`
		Message        sarifText       `json:"message"`
		AssociatedRule sarifDescriptor `json:"associatedRule"`
	}
	sarifDescriptor struct {
		ID string `json:"id"`
	}
)

// SARIF writes a result for code scanning (SARIF 2.1.0). Checks that did not run are among the notifications.
func SARIF(output io.Writer, result finding.Result, checks []check.Check, version string) error {
	run := sarifRun{
		Tool: sarifTool{sarifDriver{
			Name: "theseus", Version: version, InformationURI: "https://github.com/theseus-cni/theseus",
			Rules: []sarifRule{},
		}},
		Results:     []sarifResult{},
		Invocations: []sarifInvocation{{ExecutionSuccessful: true, Notifications: []sarifNotification{}}},
	}
	index := map[string]int{}
	for i, c := range checks {
		index[c.ID] = i
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{
			ID: c.ID, ShortDescription: sarifText{c.Title}, Help: sarifHelp{c.Doc, c.Doc}, HelpURI: URL(c.ID),
		})
	}
	for _, f := range result.Findings {
		run.Results = append(run.Results, sarifOf(f, index[f.ID]))
	}
	for _, n := range result.NotChecked {
		run.Invocations[0].Notifications = append(run.Invocations[0].Notifications,
			sarifNotification{Level: "warning", Message: sarifText{"not checked: " + n.Why},
				AssociatedRule: sarifDescriptor{n.ID}})
	}
	return encode(output, sarifLog{
		Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0", Runs: []sarifRun{run},
	})
}

func sarifOf(f finding.Finding, rule int) sarifResult {
	text := f.Message
	if f.Expired != "" {
		text += "\n" + f.Expired
	}
	if f.Fix != "" {
		text += "\nFix: " + f.Fix
	}
	name := f.Subject.String()
	result := sarifResult{
		RuleID: f.ID, RuleIndex: rule,
		Level: map[finding.Severity]string{finding.Block: "error", finding.Warn: "warning",
			finding.Info: "note"}[f.Severity],
		Message: sarifText{text},
		Locations: []sarifLocation{
			{[]sarifLogical{{Name: f.Subject.Name, FullyQualifiedName: name, Kind: "resource"}}}},
		Properties:   f.Evidence,
		Fingerprints: map[string]string{"theseus/v1": f.ID + " " + name},
	}
	if f.Accepted != "" {
		result.Suppressions = []sarifSuppression{{Kind: "external", Justification: f.Accepted}}
	}
	return result
}
