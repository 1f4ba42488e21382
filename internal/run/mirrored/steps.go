package mirrored

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/mirror/certs"
	"github.com/theseus-cni/theseus/internal/mirror/certs/prover"
	"github.com/theseus-cni/theseus/internal/mirror/cloud/aws"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// certificates reports whether every certificate has its names, and the action that removes them again.
func (h *Actor) certificates(ctx context.Context, action step.Action) (engine.Observation, error) {
	_, entries, err := h.surveyed(ctx, action)
	if err != nil {
		return engine.Observation{}, err
	}
	seen := engine.Observation{Done: true, Inverse: &step.Action{Title: "restore the former names of every certificate",
		Do: step.Mirror{Verb: mirror.TakeNames, Args: action.Args()}}}
	for _, e := range entries {
		// a certificate that has them may not be issued yet
		seen.Done = seen.Done && e.Verdict != certs.Adds && e.Verdict != certs.Has
	}
	return seen, nil
}

func (h *Actor) surveyed(ctx context.Context, action step.Action) (*prover.Cluster, []certs.Entry, error) {
	args, err := step.Arguments[mirror.CertificateArgs](action)
	if err != nil {
		return nil, nil, err
	}
	rules, err := certs.ParseRules(args.Domains)
	if err != nil {
		return nil, nil, err
	}
	cluster := &prover.Cluster{Client: h.World.Original.Client}
	world, err := cluster.Read(ctx, args.Namespaces)
	if err != nil {
		return nil, nil, kube.Passing(err)
	}
	entries := certs.Survey(world, certs.Options{Rules: rules, Skip: args.Skip, HTTP01: args.HTTP01,
		Now: time.Now(), For: mirror.Serves})
	if bad := certs.Blocking(entries); len(bad) > 0 {
		return nil, nil, engine.WithHint(fmt.Errorf("%s: %s (and %d more are blocked)", bad[0].Object,
			bad[0].Why, len(bad)-1), bad[0].Hint)
	}
	return cluster, entries, nil
}

func (h *Actor) addNames(ctx context.Context, action step.Action) error {
	cluster, entries, err := h.surveyed(ctx, action)
	if err != nil {
		return err
	}
	added, err := cluster.AddNames(ctx, entries, prover.Patience, h.Note)
	if err == nil {
		h.Note(fmt.Sprintf("%d names were added", added))
	}
	return kube.Passing(err)
}

func (h *Actor) takeNames(ctx context.Context, action step.Action) error {
	args, err := step.Arguments[mirror.CertificateArgs](action)
	if err != nil {
		return err
	}
	cluster := &prover.Cluster{Client: h.World.Original.Client}
	world, err := cluster.Read(ctx, args.Namespaces)
	if err != nil {
		return kube.Passing(err)
	}
	rows, writes, err := prover.TakeNames(world)
	if err != nil {
		return engine.WithHint(err, prover.TakeNamesHint)
	}
	for _, r := range rows {
		h.Note(r.Object + " loses " + strings.Join(r.Names, ", "))
	}
	return kube.Passing(cluster.Apply(ctx, writes))
}

// cloud reports whether a change is already made, or, for an undo, whether the change was not made by this migration.
func (h *Actor) cloud(ctx context.Context, action step.Action) (engine.Observation, error) {
	args, err := step.Arguments[mirror.CloudArgs](action)
	if err != nil {
		return engine.Observation{}, err
	}
	if args.Of != "" {
		ours, err := h.did(ctx, args.Of)
		if err != nil || !ours {
			return engine.Observation{Done: err == nil}, err
		}
	}
	client, err := aws.Connect(ctx, args.Endpoint)
	if err != nil {
		return engine.Observation{}, err
	}
	needed, err := client.Needed(ctx, args.Action, args.Back)
	seen := engine.Observation{Done: !needed}
	if args.Of == "" {
		args.Back = !args.Back
		back, err := json.Marshal(args)
		if err != nil {
			return seen, err
		}
		seen.Inverse = &step.Action{Do: step.Mirror{Verb: mirror.Cloud, Args: back}, Timeout: action.Timeout}
	}
	return seen, kube.Passing(err)
}

func (h *Actor) doCloud(ctx context.Context, action step.Action) error {
	args, err := step.Arguments[mirror.CloudArgs](action)
	if err != nil {
		return err
	}
	client, err := aws.Connect(ctx, args.Endpoint)
	if err != nil {
		return err
	}
	return kube.Passing(client.Do(ctx, args.Action, args.Back, func() error { return nil }))
}

// did reports, from the journal, whether the first observation of an action found it not done, so that what exists of
// it now was made by the migration.
func (h *Actor) did(ctx context.Context, id string) (bool, error) {
	records, err := h.Records.Records(ctx)
	for _, r := range records {
		if r.Event == engine.Intended && r.Action == id && r.Inverse != nil {
			return true, nil
		}
	}
	return false, err
}
