package rehearsal

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/theseus-cni/theseus/internal/safeio/shell"
)

// Fault is something that is broken on purpose while the change runs on the copy.
type Fault struct {
	// Name is one of the faults that have a rule of their own, or a name for a command of the user's.
	Name string
	// At is the step with which it begins, from 1; 0 for one at random.
	At int
	// Command makes it, and takes it back before it ends; empty if Theseus makes it.
	Command []string
}

// The faults that Theseus makes itself: by the API, on any cluster.
const (
	FaultAgent = "agent"
	FaultImage = "image"
)

// MostFaults bounds the faults of a rehearsal: each takes a run of its own.
const MostFaults = 10

// ended is how a run with a fault may end by the rules (docs/reference/interruptions.md).
type ended struct {
	expected string
	// rolledBack says that it may also be rolled back by itself.
	rolledBack bool
}

// rules are the faults that have a rule of their own. All others are commands that Theseus knows nothing about.
var rules = map[string]ended{
	FaultAgent: {"goes on: the next agent of the node does the task again", false},
	FaultImage: {"goes on when the image is there again, or is rolled back, and says why", true},
	"api":      {"goes on: each call to the API server is tried again", false},
	"power":    {"waits for the node, and is rolled back if more is lost than the change allows", true},
	"loss":     {"goes on, or is rolled back if more is lost than the change allows", true},
}

var others = ended{"goes on, or is rolled back, and says why", true}

func (f Fault) rule() ended {
	if rule, known := rules[f.Name]; known {
		return rule
	}
	return others
}

// Expected says how a run with the fault must end.
func (f Fault) Expected() string { return f.rule().expected }

// MayRollBack says that a run with the fault may be rolled back without being asked to.
func (f Fault) MayRollBack() bool { return f.rule().rolledBack }

// own reports whether Theseus makes the fault itself.
func own(name string) bool { return name == FaultAgent || name == FaultImage }

// FaultError says why faults cannot be made.
type FaultError struct{ Why, Hint string }

func (e *FaultError) Error() string { return e.Why }

var nameOfFault = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)

// Faults reads what names faults, each NAME, NAME@STEP or NAME@random, and the commands that make them, each
// NAME=COMMAND. Its errors are FaultErrors.
func Faults(named, commands []string) (all []Fault, err error) {
	by := map[string][]string{}
	for _, text := range commands {
		name, command, _ := strings.Cut(text, "=")
		words, err := shell.Split(command)
		switch {
		case !nameOfFault.MatchString(name):
			return nil, &FaultError{fmt.Sprintf("--fault-command %q names no fault", text),
				"as in --fault-command api=COMMAND; a name has lower-case letters, digits and -"}
		case err != nil:
			return nil, &FaultError{fmt.Sprintf("--fault-command %s: %v", name, err),
				"as in --fault-command " + name + "=COMMAND, quoted as for a shell"}
		case own(name):
			return nil, &FaultError{fmt.Sprintf("--fault-command %s: Theseus makes this fault itself", name),
				"leave it out, or give the command another name"}
		case by[name] != nil:
			return nil, &FaultError{fmt.Sprintf("--fault-command %s is given twice", name),
				"give each command a name of its own"}
		}
		by[name] = words
	}
	for _, text := range named {
		name, at, placed := strings.Cut(text, "@")
		f := Fault{Name: name, Command: by[name]}
		_, known := rules[name]
		switch {
		case known && !own(name) && f.Command == nil:
			return nil, &FaultError{fmt.Sprintf("--faults %s: this fault cannot be made through the API", name),
				"name a command that makes it: --fault-command " + name + "=COMMAND; theseus-lab rehearse has one"}
		case !nameOfFault.MatchString(name), !known && f.Command == nil:
			return nil, &FaultError{fmt.Sprintf("--faults %q: there is no such fault", text), "agent and image need " +
				"nothing else; for a fault of your own, name a command too: --fault-command NAME=COMMAND"}
		}
		if placed && at != "random" {
			if f.At, err = strconv.Atoi(at); err != nil || f.At < 1 {
				return nil, &FaultError{fmt.Sprintf("--faults %q: %q is no step", text, at),
					"a step is a number from 1, or random"}
			}
		}
		all = append(all, f)
	}
	if len(all) > MostFaults {
		return nil, &FaultError{fmt.Sprintf("--faults names %d faults, and each takes a run of its own", len(all)),
			fmt.Sprintf("name at most %d", MostFaults)}
	}
	for name := range by {
		if !slices.ContainsFunc(all, func(f Fault) bool { return f.Name == name }) {
			return nil, &FaultError{fmt.Sprintf("--fault-command %s: --faults does not name it", name),
				"add --faults " + name}
		}
	}
	return all, nil
}
