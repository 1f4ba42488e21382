package mirror

import (
	"fmt"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/surge"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/mirror/dns/shift"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
	"github.com/theseus-cni/theseus/internal/step"
)

// Kind moves the names of services to a second cluster while the original is changed. No change asks for it: Propose
// makes it of a setup.
func Kind() kind.Kind {
	return kind.Kind{
		Name:      Name,
		Of:        func(p *kind.Plan) bool { return p.Mirror != nil },
		Complete:  true,
		Rules:     rules,
		Within:    within,
		Reach:     reach,
		Uses:      uses,
		TakesBack: takesBack,
		Signals:   signals,
		Words: kind.Words{
			Summary: summary,
			Scope: func(p *kind.Plan) string {
				b := &strings.Builder{}
				moved(b, p)
				given(b, p)
				return b.String()
			},
			Chapters: map[string]string{
				"cloud": "The mirror", "names": "The mirror", "freeze": "The mirror",
				"copy": "The mirror", "certificates": "The mirror", over: "Move names to the mirror",
				"change": "Change the original", "whole": "Move names back", home: "Move names back",
				"thaw": "Clean up", "teardown": "Clean up", "unname": "Clean up", "uncloud": "Clean up",
			},
			Undo:  undo,
			Nodes: surge.Describe,
		},
	}
}

// signals leaves them out on the way home: that they fail is a reason to go home. While the original is changed, what
// measures there may be away.
func signals(s *step.Step) kind.Signals {
	switch {
	case s.Group == home:
		return kind.SignalsLeft
	case s.ID == changeID:
		return kind.SignalsWait
	}
	return kind.SignalsHold
}

// within is the plan of the strategy that changes the original; nil where a command or a person does.
func within(p *kind.Plan) *kind.Plan {
	if p.Mirror == nil || !p.OnNodes() {
		return nil
	}
	first, last := Within(p.Steps)
	own := *p
	own.Mirror, own.Strategy, own.Steps = nil, p.Mirror.Switch.Strategy, p.Steps[first:last]
	return &own
}

func summary(p *kind.Plan) string {
	text := fmt.Sprintf("Names move to the mirror, and back after the change of the original: %s of %s, strategy %s: "+
		"%s.\n", cluster.Count(len(p.Mirror.Names.Moves), "name"),
		strings.Join(p.Mirror.Copy.Namespaces, ", "), p.Strategy, p.Reason)
	if p.OnNodes() {
		text += fmt.Sprintf("In between, the original changes from %s to %s, strategy %s: %s.\n",
			kind.Named(p.Source), kind.Named(p.Target), p.Mirror.Switch.Strategy, p.Size())
	}
	return text
}

// moved says of every name from where to where it goes.
func moved(b *strings.Builder, p *kind.Plan) {
	b.WriteString("\nNames that move, and move back:\n")
	for _, m := range p.Mirror.Names.Moves {
		gone, come := m.Changes()
		fmt.Fprintf(b, "  %s (%s): %s -> %s\n", strings.TrimSuffix(m.Name, "."), strings.Join(m.Services, ", "),
			where(gone), where(come))
	}
}

// given says what the mirror is given before, and the command for the original.
func given(b *strings.Builder, p *kind.Plan) {
	if config := p.Mirror.Switch.Config; config != nil {
		fmt.Fprintf(b, "\nThe command gets the original's configuration in the file $%s, with these changes:\n",
			ConfigVariable)
		for _, change := range config.Changes {
			fmt.Fprintf(b, "  %s\n", change)
		}
	}
}

// undo says how steps are taken back whose actions are verbs of its own.
func undo(s *step.Step) string {
	for _, one := range []struct{ verb, undo string }{
		{AddNames, "restore the former names of every certificate"},
		{Cloud, "remove, in reverse order, the permissions that did not exist before"},
		{Freeze, "thaw; a freeze that was already in force stays"},
		{Copy, "none; the copied objects stay, and receive no requests"},
		{shift.Swap, "restore every record that is still as the plan left it, and wait until all resolvers see it; " +
			"records that others have changed are reported"},
	} {
		if slices.ContainsFunc(s.Actions, func(a step.Action) bool { return a.Verb() == one.verb }) {
			return one.undo
		}
	}
	return ""
}

// reach adds what the plan uses of this machine.
func reach(p *kind.Plan, r *kind.Reach) {
	surge.Reach(p, r)
	for _, line := range []string{p.Mirror.Switch.Command, p.Mirror.Switch.Roll} {
		if line != "" {
			kind.Once(&r.Commands, "sh -c "+shell.Quoted(line))
		}
	}
	if file := p.Mirror.Access.Kubeconfig; file != "" {
		kind.Once(&r.Uses, "kubeconfig of the mirror: "+file)
	}
	if name := p.Mirror.Access.Context; name != "" {
		kind.Once(&r.Uses, "context of the mirror: "+name)
	}
	if file := p.Mirror.Access.Zones; file != "" {
		kind.Once(&r.Uses, "how zones are reached: "+file)
	}
	if p.Mirror.Cloud != nil {
		kind.Once(&r.Uses, "API of the cloud, which gets requests signed with this machine's credentials: "+
			p.Mirror.Cloud.Endpoint)
	}
}
