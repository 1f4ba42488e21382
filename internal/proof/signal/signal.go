// Package signal says what a signal of the user's is: a query of a Prometheus with a comparison, an HTTP check, or a
// command. The text that a user writes is also how plans keep it. The package reads such texts, reads the answers of a
// Prometheus, and judges them. It is pure: its package ask does the asking.
package signal

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
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
	// Address is that of a Prometheus if Query is set, and else the one of an HTTP check, which must answer with a
	// status of 200 to
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
const Form = "'http://prometheus:9090 sum(rate(errors[1m])) < 0.01', https://shop.example.org/healthz " +
	"or 'command: ./check.sh'"

// comparison is the end of a text with a query.
var comparison = regexp.MustCompile(
	`(?s)^(.*\S)\s*(<=|>=|==|!=|<|>)\s*([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)$`)

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
	return strings.HasPrefix(text, "http://") || strings.HasPrefix(text, "https://") ||
		strings.HasPrefix(text, commandPrefix)
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
		return s, errors.New("it has no address: begin with the address of a Prometheus, or give the address with " +
			"--prometheus")
	}
	if command, is := strings.CutPrefix(s.text, commandPrefix); is {
		var err error
		if s.Command, err = shell.Split(command); err == nil && strings.Contains(s.Command[0], "/") &&
			!filepath.IsAbs(s.Command[0]) {
			err = errors.New("its program has a relative path, and the plan may run in another " +
				"directory: give the absolute one")
		}
		return s, err
	}
	address, query, _ := strings.Cut(s.text, " ")
	query = strings.TrimSpace(query)
	if err := checkAddress(address, query != ""); err != nil {
		return s, err
	}
	s.Address = address
	if query == "" {
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

// secretive are the parameters of an address that hold credentials, and ours those that Theseus sets itself, or that
// ask for another time than now. Both are in lower case.
var (
	secretive = regexp.MustCompile(`token|passw|pwd|secret|credential|^auth|api[-_]?key|^key$|signature|^sig$|^pass$`)
	ours      = []string{"query", "time", "lookback_delta"}
)

// checkAddress demands a URL without credentials: a plan is readable for many. The errors do not have the address,
// which may hold some.
func checkAddress(address string, query bool) error {
	const held = "its address holds credentials, which would be stored in the plan: use a command " +
		"that reads them from a file"
	at, err := url.Parse(address)
	if err != nil {
		return errors.New("its address is not a URL")
	}
	parameters, err := url.ParseQuery(at.RawQuery)
	switch {
	case at.User != nil:
		return errors.New(held)
	case at.Hostname() == "":
		return errors.New("its address names no host")
	case at.Fragment != "":
		return errors.New("its address has a fragment")
	case err != nil:
		return errors.New("the part of its address after ? cannot be read")
	}
	for name := range parameters {
		switch name = strings.ToLower(name); {
		case secretive.MatchString(name):
			return errors.New(held)
		case query && slices.Contains(ours, name):
			return fmt.Errorf("its address sets %s, which Theseus sets itself", name)
		}
	}
	return nil
}

// Absolute makes the program of a signal that is a command absolute, if it is a path relative to dir. Other texts stay
// as they are.
func Absolute(dir, text string) string {
	command, is := strings.CutPrefix(strings.TrimSpace(text), commandPrefix)
	if !is {
		return text
	}
	words, err := shell.Split(command)
	if err != nil || !strings.Contains(words[0], "/") || filepath.IsAbs(words[0]) {
		return text
	}
	words[0] = filepath.Join(dir, words[0])
	return commandPrefix + " " + shell.Words(words...)
}

// ParseAll reads the signals of a change: each once, and not too many. An error says which one is wrong by its number,
// as a text may hold credentials.
func ParseAll(texts []string) ([]Signal, error) {
	if len(texts) > v1alpha1.MaxSLO {
		return nil, fmt.Errorf("there are %d signals, and at most %d are allowed", len(texts), v1alpha1.MaxSLO)
	}
	var all []Signal
	for i, text := range texts {
		one, err := Parse(text)
		if err != nil {
			return nil, fmt.Errorf("signal %d of %d: %w", i+1, len(texts), err)
		}
		if first := slices.IndexFunc(all, func(other Signal) bool { return other.text == one.text }); first >= 0 {
			return nil, fmt.Errorf("signal %d of %d: it is the same as signal %d", i+1, len(texts), first+1)
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
	b.WriteString("\nSignals that every gate also asks, from the machine that runs the plan; a signal without an " +
		"answer fails:\n")
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
		address, _, _ := strings.Cut(s.Address, "?") // the plan has the whole
		return address
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
