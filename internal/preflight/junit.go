package preflight

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

type (
	junitSuites struct {
		XMLName xml.Name     `xml:"testsuites"`
		Suites  []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"` // always 0, but required by schemas of the format
		Skipped  int         `xml:"skipped,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Failure *junitMessage `xml:"failure"`
		Skipped *junitMessage `xml:"skipped"`
		Output  string        `xml:"system-out,omitempty"`
	}
	junitMessage struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// JUnit writes a result as a test report. Each of the checks that were chosen is a case: it fails if it has a finding
// that blocks, and is skipped if it was not checked. Warnings are in the case's output.
func JUnit(output io.Writer, result finding.Result, checks []check.Check) error {
	suite := junitSuite{Name: "theseus check", Cases: []junitCase{}}
	for _, c := range checks {
		suite.Cases = append(suite.Cases, junitOf(c.ID, result))
	}
	suite.Tests = len(suite.Cases)
	for _, one := range suite.Cases {
		if one.Failure != nil {
			suite.Failures++
		}
		if one.Skipped != nil {
			suite.Skipped++
		}
	}
	if _, err := io.WriteString(output, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(output)
	encoder.Indent("", "  ")
	if err := encoder.Encode(junitSuites{Suites: []junitSuite{suite}}); err != nil {
		return err
	}
	_, err := io.WriteString(output, "\n")
	return err
}

func junitOf(id string, result finding.Result) junitCase {
	topic, _, _ := strings.Cut(id, "/")
	one := junitCase{Class: "theseus." + topic, Name: id}
	for _, n := range result.NotChecked {
		if n.ID == id {
			one.Skipped = &junitMessage{Message: n.Why}
		}
	}
	var blocking, other []string
	for _, f := range result.Findings {
		if f.ID != id {
			continue
		}
		line := fmt.Sprintf("%s %s: %s", f.Severity, f.Subject.String(), f.Message)
		if f.Expired != "" {
			line += "\n  " + f.Expired
		}
		if f.Fix != "" {
			line += "\n  fix: " + f.Fix
		}
		switch {
		case f.Severity == finding.Block && f.Accepted == "":
			blocking = append(blocking, line)
		case f.Accepted != "":
			other = append(other, line+"\n  accepted: "+f.Accepted)
		default:
			other = append(other, line)
		}
	}
	if len(blocking) > 0 {
		one.Failure = &junitMessage{Message: fmt.Sprintf("findings that block: %d", len(blocking)),
			Text: strings.Join(blocking, "\n")}
	}
	one.Output = strings.Join(other, "\n")
	return one
}
