package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/step"
)

const (
	// lookAtOnce is how many nodes are asked at the same time.
	lookAtOnce = 16
	// lookBack bounds the removal of what was installed to look.
	lookBack = 2 * time.Minute
)

// Look asks the agent of every node for the node's facts, in the order of the nodes. What of install was not
// there before is taken away again, also when looking failed or was interrupted.
func (a *Actor) Look(ctx context.Context, install []step.Action, nodes []string) ([]cluster.NodeFacts, error) {
	return Ask[cluster.NodeFacts](ctx, a, install, nodes, step.VerbFacts, nil)
}

// Ask asks the agent of every node for a verb, as Look does, and decodes the answers.
func Ask[T any](ctx context.Context, a *Actor, install []step.Action, nodes []string, verb string, args json.RawMessage) (answers []T, err error) {
	var back []step.Action
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookBack)
		defer cancel()
		for i := len(back) - 1; i >= 0; i-- {
			if _, failed := a.Do(ctx, back[i], nil); failed != nil {
				err = errors.Join(err, fmt.Errorf("%s: %w", back[i].Title, failed))
			}
		}
	}()
	for _, action := range install {
		seen, err := a.Observe(ctx, action, nil)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", action.Title, err)
		}
		if seen.Done {
			continue
		}
		if seen.Inverse != nil {
			back = append(back, *seen.Inverse)
		}
		if _, err := a.Do(ctx, action, nil); err != nil {
			return nil, fmt.Errorf("%s: %w", action.Title, err)
		}
	}
	answers = make([]T, len(nodes))
	group, inner := errgroup.WithContext(ctx)
	group.SetLimit(lookAtOnce)
	for i, node := range nodes {
		group.Go(func() error {
			answer, err := a.Do(inner, step.Action{ID: "look/" + node, Op: step.Node, NodeName: node, Verb: verb, Args: args}, nil)
			if err == nil {
				err = json.Unmarshal(answer, &answers[i])
			}
			if err != nil {
				return fmt.Errorf("look at %s: %w", node, err)
			}
			return nil
		})
	}
	return answers, group.Wait()
}
