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

// Sight is a node to look at.
type Sight struct {
	Node string
	// Peers are addresses of other nodes, to which the node measures the path MTU.
	Peers []string
}

// Look asks the agent of every node for the node's facts, in the order of the nodes. What of install was not
// there before is taken away again, also when looking failed or was interrupted.
func (a *Actor) Look(ctx context.Context, install []step.Action, nodes []Sight) ([]cluster.NodeFacts, error) {
	questions := make([]Question, len(nodes))
	for i, node := range nodes {
		args, err := json.Marshal(step.FactsArgs{Peers: node.Peers})
		if err != nil {
			return nil, err
		}
		questions[i] = Question{Node: node.Node, Verb: step.VerbFacts, Args: args}
	}
	answers, err := Ask[cluster.NodeFacts](ctx, a, install, questions)
	facts := make([]cluster.NodeFacts, len(answers))
	for i, answer := range answers {
		facts[i] = answer.Value
		if host := facts[i].Host; host != nil {
			host.Clock.Asked, host.Clock.Answered = answer.Asked, answer.Answered
		}
	}
	return facts, err
}

// Question is a verb for the agent of a node.
type Question struct {
	Node, Verb string
	Args       json.RawMessage
}

// Answer is what an agent said, and between which times of this machine.
type Answer[T any] struct {
	Value           T
	Asked, Answered time.Time
}

// Ask asks agents, and takes what it installed for that away again, as Look does. Answers are in the order of the
// questions.
func Ask[T any](ctx context.Context, a *Actor, install []step.Action, questions []Question) (answers []Answer[T], err error) {
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
	answers = make([]Answer[T], len(questions))
	group, inner := errgroup.WithContext(ctx)
	group.SetLimit(lookAtOnce)
	for i, q := range questions {
		group.Go(func() error {
			answers[i].Asked = a.Clock.Now().UTC()
			answer, err := a.Do(inner, step.Action{ID: "look/" + q.Node, Op: step.Node, NodeName: q.Node, Verb: q.Verb, Args: q.Args}, nil)
			answers[i].Answered = a.Clock.Now().UTC()
			if err == nil {
				err = json.Unmarshal(answer, &answers[i].Value)
			}
			if err != nil {
				return fmt.Errorf("look at %s: %w", q.Node, err)
			}
			return nil
		})
	}
	return answers, group.Wait()
}
