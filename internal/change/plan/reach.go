package plan

import (
	"slices"

	"github.com/theseus-cni/theseus/internal/safeio/shell"
	"github.com/theseus-cni/theseus/internal/step"
)

// Reach is what a plan does beyond objects that it applies: what a person has to know before a plan that came from a cluster runs.
type Reach struct {
	// Commands are run on the machine that runs the plan.
	Commands []string
	// Uses are files and addresses that this machine opens, and which credentials they get.
	Uses []string
	// Deletes are objects that it deletes, and nodes that it cleans or removes.
	Deletes []string
	// NoReturn is the number of the step that is the point of no return, 0 where there is none, and Title that step's.
	NoReturn int
	Title    string
}

// ReachOf lists them, each once, in the order of the steps.
func ReachOf(p *Plan) Reach {
	r := Reach{}
	if p.Surge != nil {
		r.command(p.Surge.AddHook)
		r.command(p.Surge.RemoveHook)
	}
	if p.Rollout != nil && p.Rollout.Origin != nil {
		once(&r.Uses, "flags of "+p.Rollout.Origin.Source+", which gets THESEUS_FLAGS_TOKEN where it is a server")
	}
	r.mirror(p)
	for i := range p.Steps {
		s := &p.Steps[i]
		if s.NoReturn && r.NoReturn == 0 {
			r.NoReturn, r.Title = i+1, s.Title
		}
		for _, action := range slices.Concat(s.Actions, s.Undo) {
			r.action(action)
		}
	}
	return r
}

// mirror adds what a plan of the strategy mirror uses.
func (r *Reach) mirror(p *Plan) {
	if p.Mirror == nil {
		return
	}
	for _, line := range []string{p.Mirror.Switch.Command, p.Mirror.Switch.Roll} {
		if line != "" {
			once(&r.Commands, "sh -c "+shell.Quoted(line))
		}
	}
	if file := p.Mirror.Access.Kubeconfig; file != "" {
		once(&r.Uses, "kubeconfig of the mirror: "+file)
	}
	if name := p.Mirror.Access.Context; name != "" {
		once(&r.Uses, "context of the mirror: "+name)
	}
	if file := p.Mirror.Access.Zones; file != "" {
		once(&r.Uses, "how zones are reached: "+file)
	}
	if p.Mirror.Cloud != nil {
		once(&r.Uses, "API of the cloud, which gets requests signed with this machine's credentials: "+p.Mirror.Cloud.Endpoint)
	}
}

func (r *Reach) action(a step.Action) {
	switch a.Op {
	case step.Delete:
		if a.Ref != nil {
			once(&r.Deletes, a.Ref.String())
		}
	case step.Hook:
		if args, err := step.Arguments[step.HookArgs](a); err == nil {
			r.command(args.Command)
		}
		if a.Verb == step.VerbRemove {
			once(&r.Deletes, "node "+a.NodeName)
		}
	case step.Node:
		if a.Verb == step.VerbClean {
			once(&r.Deletes, "what the network left on "+a.NodeName)
		}
	}
}

// command adds a command that runs without a shell.
func (r *Reach) command(words []string) {
	if len(words) == 0 {
		return
	}
	once(&r.Commands, shell.Words(words...))
}

func once(list *[]string, text string) {
	if !slices.Contains(*list, text) {
		*list = append(*list, text)
	}
}
