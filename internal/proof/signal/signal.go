// Package signal says what a signal of the user's is: a query of a Prometheus with a comparison, an HTTP check, or a command. The
// text that a user writes is also how plans keep it. The package reads such texts, reads the answers of a Prometheus, and judges
// them. It is pure: its package ask does the asking.
package signal

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/safeio/printable"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
)

// Signal is one of the user's own measurements, and what it has to be.
type Signal struct {
	// Address is that of a Prometheus if Query is set, and else the one of an HTTP check, which must answer with a status of 200 to
	// 299. It is empty for a command.
	Address string
	// Query is an instant query. Every number that it yields must compare to Bound by Compare: <, <=, >, >=, == or !=.
	Query   string
	Compare string
	Bound   float64
	// Command is a program and its arguments, which must end with exit code 0. No shell sees them.
	Command []string

	text string
}

// commandPrefix begins a signal that is a command. No name of a metric ends in a colon by Prometheus' conventions.
const commandPrefix = "command:"

// Form is how a signal is written, for hints.
const Form = "'http://prometheus:9090 sum(rate(errors[1m])) < 0.01', https://shop.example.org/healthz or 'command: ./check.sh'"

// comparison is the end of a text with a query.
var comparison = regexp.MustCompile(`(?s)^(.*\S)\s*(<=|>=|==|!=|<|>)\s*([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)$`)

// String is the text that the signal was read from.
func (s Signal) String() string { return s.text }

// At puts the address of a Prometheus before a query that has none. Other texts stay as they are.
func At(prometheus, text string) string {
	text = strings.TrimSpace(text)
	if prometheus == "" || text == "" || sourced(text) {
		return text
	}
	return prometheus + " " + text
}

// sourced says whether a text says where the signal comes from.
func sourced(text string) bool {
	return strings.HasPrefix(text, "http://") || strings.HasPrefix(text, "https://") || strings.HasPrefix(text, commandPrefix)
}

// Parse reads the text of a signal.
func Parse(text string) (Signal, error) {
	s := Signal{text: strings.TrimSpace(text)}
	switch {
	case s.text == "":
		return s, errors.New("it is empty")
	case len(s.text) > v1alpha1.MaxSLOLength:
		return s, fmt.Errorf("it has %d bytes, and may have %d", len(s.text), v1alpha1.MaxSLOLength)
	case s.text != printable.Line(s.text):
		return s, errors.New("it has characters that cannot be printed, or several lines")
	case !sourced(s.text):
		return s, errors.New("it does not say where to ask: begin with the address of a Prometheus, or give that with --prometheus")
	}
	if command, is := strings.CutPrefix(s.text, commandPrefix); is {
		var err error
		s.Command, err = shell.Split(command)
		return s, err
	}
	address, query, _ := strings.Cut(s.text, " ")
	if err := checkAddress(address); err != nil {
		return s, err
	}
	s.Address = address
	if query = strings.TrimSpace(query); query == "" {
		return s, nil
	}
	parts := comparison.FindStringSubmatch(query)
	if parts == nil {
		return s, fmt.Errorf("the query %s does not end with a comparison with a number, such as < 0.01", query)
	}
	var err error
	s.Query, s.Compare = parts[1], parts[2]
	if s.Bound, err = strconv.ParseFloat(parts[3], 64); err != nil {
		return s, fmt.Errorf("%s is out of the range of numbers", parts[3])
	}
	return s, nil
}

// checkAddress demands a URL without credentials: a plan is readable for many.
func checkAddress(address string) error {
	at, err := url.Parse(address)
	switch {
	case err != nil:
		return errors.New("its address is no URL") // the error may hold a password
	case at.Host == "" || at.Hostname() == "":
		return fmt.Errorf("the address %s names no host", address)
	case at.User != nil:
		return errors.New("its address holds credentials, which would be stored in the plan: use a command that reads them from a file")
	case at.Fragment != "":
		return fmt.Errorf("the address %s has a fragment", address)
	}
	return nil
}

// ParseAll reads the signals of a change: each once, and not too many.
func ParseAll(texts []string) ([]Signal, error) {
	if len(texts) > v1alpha1.MaxSLO {
		return nil, fmt.Errorf("there are %d signals, and at most %d are allowed", len(texts), v1alpha1.MaxSLO)
	}
	var all []Signal
	for _, text := range texts {
		one, err := Parse(text)
		if err != nil {
			return nil, fmt.Errorf("%.100q: %w", text, err)
		}
		if slices.ContainsFunc(all, func(other Signal) bool { return other.text == one.text }) {
			return nil, fmt.Errorf("%s is given twice", one)
		}
		all = append(all, one)
	}
	return all, nil
}

// Commands are the commands of signals: programs that must exist where the signals are asked.
func Commands(signals []Signal) (commands [][]string) {
	for _, one := range signals {
		if len(one.Command) > 0 {
			commands = append(commands, one.Command)
		}
	}
	return commands
}

// Demand says what the signal must be, as a clause for runbooks.
func (s Signal) Demand() string {
	switch {
	case len(s.Command) > 0:
		return "the command " + shell.Words(s.Command...) + " must end with exit code 0"
	case s.Query == "":
		return s.Address + " must answer with an HTTP status of 200 to 299"
	}
	return fmt.Sprintf("%s must be %s %s, asked at %s", s.Query, s.Compare, number(s.Bound), s.Address)
}

// Demands are the lines of a runbook about the signals of a plan; empty if it has none.
func Demands(texts []string) string {
	signals, err := ParseAll(texts)
	if err != nil || len(signals) == 0 { // Verify refuses such a plan
		return ""
	}
	b := &strings.Builder{}
	b.WriteString("\nSignals that every gate asks, too, from where the plan runs; no answer is a failure:\n")
	for _, one := range signals {
		fmt.Fprintf(b, "  %s\n", one.Demand())
	}
	return b.String()
}

// AtGate is what the signals of a plan add to the line of a gate.
func AtGate(texts []string) string {
	if len(texts) == 0 {
		return ""
	}
	return "; and every signal holds"
}

// Name is what the signal measures, short enough for a sentence.
func (s Signal) Name() string {
	switch {
	case len(s.Command) > 0:
		return "the command " + shell.Words(s.Command...)
	case s.Query == "":
		return s.Address
	}
	return s.Query
}

func number(value float64) string { return strconv.FormatFloat(value, 'g', -1, 64) }

// holds says whether a value is as the signal demands.
func (s Signal) holds(value float64) bool {
	switch s.Compare {
	case "<":
		return value < s.Bound
	case "<=":
		return value <= s.Bound
	case ">":
		return value > s.Bound
	case ">=":
		return value >= s.Bound
	case "==":
		return value == s.Bound
	}
	return value != s.Bound
}
