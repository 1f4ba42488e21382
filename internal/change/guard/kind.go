// Package guard is the kind of change that Theseus does not make: a command of the user changes the cluster, or others
// do. The plan around it installs the probes, proves that they measure, runs the command once or waits for the user's
// word, watches until no probe is lost any more, gives the verdict, and removes what it installed. It needs no
// knowledge of the network. A lost probe takes nothing back: it is the result.
//
// The guards of step.VerbGuard, which nodes have while an agent restarts, are something else.
//
// The package is pure: it turns what was seen and what is wanted into steps.
package guard

import (
	"fmt"
	"strings"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/step"
)

// Name is how plans name the strategy.
const Name = "guard"

// Kind measures a command. No change asks for it: Propose makes its plans.
func Kind() kind.Kind {
	return kind.Kind{
		Name:     Name,
		Of:       func(p *kind.Plan) bool { return p.Guarded != nil },
		Complete: true,
		Rules:    rules,
		Reach:    reach,
		Words: kind.Words{
			Summary:  summary,
			Chapters: map[string]string{Name: "The change"},
			Undo:     undo,
		},
	}
}

func summary(p *kind.Plan) string {
	from, command := p.Ends()
	return fmt.Sprintf("%s is measured on %s, before, during and after: %s\n",
		strings.ToUpper(from[:1])+from[1:], p.Size(), command)
}

// undo says that the plan does not take the command back.
func undo(s *step.Step) string {
	for i := range s.Actions {
		switch s.Actions[i].Do.(type) {
		case step.Command:
			return "nothing; what the command did stays"
		case step.Await:
			return "nothing; what others changed stays"
		case step.Watch:
			return "nothing; it changes nothing"
		}
	}
	return ""
}

// reach adds the programs that run on the user's machine.
func reach(p *kind.Plan, r *kind.Reach) {
	r.Command(p.Guarded.Command)
	if len(p.Guarded.OnLoss) > 0 {
		r.Command(p.Guarded.OnLoss)
	}
}
