package run

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/document"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/network/bgp"
	"github.com/theseus-cni/theseus/internal/network/bgp/draw"
	"github.com/theseus-cni/theseus/internal/safeio/infile"
	"github.com/theseus-cni/theseus/internal/safeio/outfile"
	"github.com/theseus-cni/theseus/internal/step"
)

// graphFile holds the input of the BGP graph from before the change.
const graphFile = "bgp-before.json"

// SpeaksBGP reports whether a plan's gates check Calico's BGP sessions.
func SpeaksBGP(p *plan.Plan) bool {
	return slices.ContainsFunc(p.Steps, func(s step.Step) bool { return s.Gate != nil && s.Gate.Sessions != nil })
}

// keepGraph saves the input of the BGP graph, once for a change.
func (r *Run) keepGraph(ctx context.Context, actor *kube.Actor) {
	file := filepath.Join(r.Dir, graphFile)
	var before cluster.Snapshot
	if !SpeaksBGP(r.Plan) || !errors.Is(infile.ReadJSON(file, document.MaxInput, &before), fs.ErrNotExist) {
		return
	}
	objects, err := actor.BGPObjects(ctx)
	if err == nil {
		err = outfile.WriteJSON(file, objects)
	}
	if err != nil {
		r.View.Say("warning: the BGP graph cannot be kept for the report: " + err.Error())
	}
}

// Graphs are the graphs before a change, as saved on this machine, and now; none if its gates check no sessions.
func Graphs(ctx context.Context, actor *kube.Actor, p *plan.Plan, dir string) ([]draw.Row, error) {
	if !SpeaksBGP(p) {
		return nil, nil
	}
	now, err := actor.BGPObjects(ctx)
	if err != nil {
		return nil, err
	}
	before, title := now, "now (the graph from before is on the machine that ran the change)"
	var kept cluster.Snapshot
	switch err := infile.ReadJSON(filepath.Join(dir, graphFile), document.MaxInput, &kept); {
	case err == nil:
		before, title = &kept, "before"
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	in, after := bgp.FromSnapshot(before), bgp.FromSnapshot(now)
	var rows []draw.Row
	for i, family := range []string{"IPv4", "IPv6"} {
		row := draw.Row{Family: family, Before: bgp.Build(in, i == 1), BeforeTitle: title}
		if row.Before == nil || !in.Speaks(i == 1) {
			continue
		}
		if before != now {
			row.After, row.AfterTitle = bgp.Build(after, i == 1), "now"
		}
		rows = append(rows, row)
	}
	return rows, nil
}
