package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/flags/flagset"
	"github.com/theseus-cni/theseus/internal/flags/setting"
)

// resolveFlags evaluates all flags of sources for every node; of several sources the first that has a flag counts.
func (a *app) resolveFlags(ctx context.Context, snapshot *cluster.Snapshot, sources []string) (plan.Flags, error) {
	var resolved plan.Flags
	if len(sources) == 0 {
		return resolved, nil
	}
	fleet, now := setting.Read(snapshot, nil), time.Now().Unix()
	resolved.Values = map[string]map[string][]string{}
	digests := sha256.New()
	for _, text := range sources {
		set, err := a.loadSet(ctx, text)
		if err != nil {
			return resolved, err
		}
		fmt.Fprintln(digests, set.Digest())
		values := fleet.Evaluate(set, set.Keys(), now, nil)
		for _, key := range values.Flags {
			if resolved.Values[key] != nil {
				continue
			}
			resolved.Values[key] = map[string][]string{}
			for n, r := range values.Of(key) {
				if r.Code != "" {
					return resolved, fail(exitFailed, "theseus flags eval "+key+" --node "+fleet.Nodes()[n]+" --explain", "%s: %s", text, r.Message)
				}
				value := shownResult(values.Of(key), n)
				resolved.Values[key][value] = append(resolved.Values[key][value], fleet.Nodes()[n])
			}
		}
	}
	resolved.Digest = hex.EncodeToString(digests.Sum(nil))
	return resolved, nil
}

// place is a node of a cluster.
type place struct {
	node  *corev1.Node
	fleet *setting.Fleet
}

func (a *app) placeOf(ctx context.Context, name string, from []string) (*place, error) {
	if name == "" {
		return nil, fail(exitUsage, "name one with --node", "it is not said for which node")
	}
	snapshot, err := a.see(ctx, from)
	if err != nil {
		return nil, err
	}
	for i := range snapshot.Nodes {
		if snapshot.Nodes[i].Name == name {
			return &place{&snapshot.Nodes[i], setting.Read(snapshot, nil)}, nil
		}
	}
	return nil, fail(exitFailed, "kubectl get nodes", "there is no node %q among %d", name, len(snapshot.Nodes))
}

// onNode is a knob on a node: what is in force, and what a flag would make of it.
type onNode struct {
	setting.InForce
	Effect setting.Effect `json:"effect,omitempty"`
	// Write is the edit that the flag asks for; nil where nothing is asked or nothing is to be done.
	Write *setting.Write `json:"write,omitempty"`
	// Beaten is what would hide the edit.
	Beaten *setting.Set `json:"beaten,omitempty"`
	// Why says why the edit cannot be made.
	Why string `json:"why,omitempty"`
}

// wanted is what a flag's result asks of the knob that it means; nil when it means none.
func (p *place) wanted(key string, result flagset.Result) (*onNode, error) {
	catalogue := p.fleet.Catalogue()
	k, known := catalogue.Get(key)
	if name, given := result.Metadata["knob"].(string); given {
		var err error
		if k, err = catalogue.Find(name); err != nil {
			return nil, fail(exitFailed, hintOf(err), "the flag's metadata: %w", err)
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

// inForce says what is in force on a node.
func (a *app) inForce(name string, p *place) error {
	k, err := p.fleet.Catalogue().Find(name)
	if err != nil {
		return fail(exitFailed, hintOf(err), "%w", err)
	}
	on := &onNode{InForce: p.fleet.Value(k, p.node.Name)}
	if a.output == "json" {
		return printJSON(a.Out, on)
	}
	return a.printOnNode(on)
}

func (a *app) printOnNode(on *onNode) error {
	fmt.Fprintf(a.Out, "%s is %s on %s\n", on.Knob, quoteEmpty(on.Value), on.Node)
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
		fmt.Fprintf(a.Out, "  the flag  would do nothing: %s in %s is stronger than %s\n", on.Beaten.Place.Name, on.Beaten.Ref, on.Write.Place.Name)
	case on.Write != nil:
		fmt.Fprintf(a.Out, "  the flag  asks for %v in %s, which means: %s\n", on.Write.Value, on.Write.Ref, on.Effect)
	}
	return nil
}
