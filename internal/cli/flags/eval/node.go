package eval

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/flags/flagsource"
	"github.com/theseus-cni/theseus/internal/cli/survey"
	"github.com/theseus-cni/theseus/internal/cli/terminal"
	"github.com/theseus-cni/theseus/internal/flags/flagset"
	"github.com/theseus-cni/theseus/internal/flags/setting"
)

// place is a node of a cluster.
type place struct {
	node  *corev1.Node
	fleet *setting.Fleet
}

func placeOf(ctx context.Context, a *app.App, name string, from []string) (*place, error) {
	if name == "" {
		return nil, exit.Fail(exit.Usage, "name one with --node", "no node is given")
	}
	snapshot, err := survey.See(ctx, a, from)
	if err != nil {
		return nil, err
	}
	for i := range snapshot.Nodes {
		if snapshot.Nodes[i].Name == name {
			return &place{&snapshot.Nodes[i], setting.Read(snapshot, nil)}, nil
		}
	}
	return nil, exit.Fail(exit.Failed, "kubectl get nodes", "there is no node %q among %d", name, len(snapshot.Nodes))
}

// onNode is a knob on a node: the value in force, and the value that a flag asks for.
type onNode struct {
	setting.InForce
	Effect setting.Effect `json:"effect,omitempty"`
	// Write is the edit that the flag asks for; nil if no edit is needed.
	Write *setting.Write `json:"write,omitempty"`
	// Beaten is a stronger setting that would override the edit.
	Beaten *setting.Set `json:"beaten,omitempty"`
	// Why says why the edit cannot be made.
	Why string `json:"why,omitempty"`
}

// wanted is the value that a flag asks for its knob; nil if the flag has no knob.
func (p *place) wanted(key string, result flagset.Result) (*onNode, error) {
	catalogue := p.fleet.Catalogue()
	k, known := catalogue.Get(key)
	if name, given := result.Metadata["knob"].(string); given {
		var err error
		if k, err = catalogue.Find(name); err != nil {
			return nil, exit.Fail(exit.Failed, exit.HintOf(err), "the flag's metadata: %w", err)
		}
	} else if !known {
		return nil, nil
	}
	on := &onNode{InForce: p.fleet.Value(k, p.node.Name)}
	if result.Default() || k.Same(setting.ValueText(result.Value), on.Value) {
		return on, nil
	}
	w, err := p.fleet.Write(k, setting.Aim{Scope: setting.Node, Node: p.node.Name}, setting.ValueText(result.Value))
	if err != nil {
		on.Why = err.Error()
		return on, nil
	}
	on.Write, on.Effect, on.Beaten = &w, w.Place.Effect, p.fleet.Beaten(k, p.node.Name, w)
	return on, nil
}

// inForce shows the value in force on a node.
func inForce(a *app.App, name string, p *place) error {
	k, err := p.fleet.Catalogue().Find(name)
	if err != nil {
		return exit.Fail(exit.Failed, exit.HintOf(err), "%w", err)
	}
	on := &onNode{InForce: p.fleet.Value(k, p.node.Name)}
	if a.Output == "json" {
		return terminal.WriteJSON(a.Out, on)
	}
	return printOnNode(a, on)
}

func printOnNode(a *app.App, on *onNode) error {
	fmt.Fprintf(a.Out, "%s is %s on %s\n", on.Knob, flagsource.OrNone(on.Value), on.Node)
	if on.By == nil {
		fmt.Fprintf(a.Out, "  by        its default\n")
	} else {
		fmt.Fprintf(a.Out, "  by        %s in %s\n", on.By.Place.Name, on.By.Ref)
		if on.By.Invalid != "" {
			fmt.Fprintf(a.Out, "  though    that says %q, and %s\n", on.By.Value, on.By.Invalid)
		}
	}
	for _, h := range on.Hidden {
		fmt.Fprintf(a.Out, "  beats     %q by %s in %s\n", h.Value, h.Place.Name, h.Ref)
	}
	switch {
	case on.Why != "":
		fmt.Fprintf(a.Out, "  the flag  cannot be carried out: %s\n", on.Why)
	case on.Beaten != nil:
		fmt.Fprintf(a.Out, "  the flag  would have no effect: %s in %s overrides %s\n",
			on.Beaten.Place.Name, on.Beaten.Ref, on.Write.Place.Name)
	case on.Write != nil:
		fmt.Fprintf(a.Out, "  the flag  asks for %v in %s, which means: %s\n", on.Write.Value, on.Write.Ref, on.Effect)
	}
	return nil
}
