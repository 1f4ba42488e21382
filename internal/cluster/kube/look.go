package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/step"
)

const (
	// lookAtOnce is how many nodes are queried at the same time.
	lookAtOnce = 16
	// lookBack is the timeout for removing what was installed for the queries.
	lookBack = 2 * time.Minute
)

// Sight is a node to query.
type Sight struct {
	Node string
	// Peers are addresses of other nodes, to which the node measures the path MTU.
	Peers []string
	// Readings are what programs of the network serve there.
	Readings []step.Reading
}

// Look asks the agent of every node for the node's facts, and returns them in the order of the nodes. It removes the
// objects of install that did not exist before, even if a query failed or was interrupted.
func (a *Actor) Look(ctx context.Context, install []step.Action, nodes []Sight) ([]cluster.NodeFacts, error) {
	questions := make([]Question, len(nodes))
	for i, node := range nodes {
		args, err := json.Marshal(step.FactsArgs{Peers: node.Peers, Readings: node.Readings})
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

// Question is a verb for a node's agent.
type Question struct {
	Node, Verb string
	Args       json.RawMessage
}

// Answer is an agent's answer, and the time of this machine before and after it.
type Answer[T any] struct {
	Value           T
	Asked, Answered time.Time
}

// Ask queries agents, and removes what it installed for that, like Look. Answers are in the order of the questions.
func Ask[T any](ctx context.Context, a *Actor, install []step.Action,
	questions []Question) (answers []Answer[T], err error) {
	back, err := a.Install(ctx, install)
	defer func() { err = errors.Join(err, back(ctx)) }()
	if err != nil {
		return nil, err
	}
	answers = make([]Answer[T], len(questions))
	group, inner := errgroup.WithContext(ctx)
	group.SetLimit(lookAtOnce)
	for i, q := range questions {
		group.Go(func() error {
			answers[i].Asked = a.Clock.Now().UTC()
			answer, err := a.Do(inner,
				step.Action{ID: "look/" + q.Node, Do: step.Node{NodeName: q.Node, Verb: q.Verb, Args: q.Args}}, nil)
			answers[i].Answered = a.Clock.Now().UTC()
			if err == nil {
				err = json.Unmarshal(answer, &answers[i].Value)
			}
			if err != nil {
				return fmt.Errorf("query node %s: %w", q.Node, err)
			}
			return nil
		})
	}
	return answers, group.Wait()
}

// Install executes actions, and returns the actions that revert them in reverse order, even if one failed or ctx has
// ended. If the cluster has a journal, its CRDs and its namespace stay.
func (a *Actor) Install(ctx context.Context, actions []step.Action) (back func(context.Context) error, err error) {
	var inverses []step.Action
	back = func(ctx context.Context) (err error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookBack)
		defer cancel()
		for _, inverse := range slices.Backward(inverses) {
			if failed := a.takeBack(ctx, inverse); failed != nil {
				err = errors.Join(err, fmt.Errorf("%s: %w", inverse.Title, failed))
			}
		}
		return err
	}
	for _, action := range actions {
		seen, err := a.Observe(ctx, action, nil)
		if err != nil {
			return back, fmt.Errorf("%s: %w", action.Title, err)
		}
		if seen.Done {
			if a.leftover(ctx, action) {
				ref := step.RefOf(action.Object())
				inverses = append(inverses, step.Action{Do: step.Delete{Ref: ref}, Title: "delete " + ref.String()})
			}
			continue
		}
		if seen.Inverse != nil {
			inverses = append(inverses, *seen.Inverse)
		}
		if _, err := a.Do(ctx, action, nil); err != nil {
			return back, fmt.Errorf("%s: %w", action.Title, err)
		}
	}
	return back, nil
}

// leftover reports whether an action, which is done already, was done by a process that was killed before it could
// revert it: it made the namespace, and nothing was deployed there since.
func (a *Actor) leftover(ctx context.Context, action step.Action) bool {
	if action.Op() != step.OpApply || !manifest.Temporary(action.Object()) {
		return false
	}
	deployed, err := a.Typed.AppsV1().Deployments(action.Object().GetName()).List(ctx, metav1.ListOptions{Limit: 1})
	return err == nil && len(deployed.Items) == 0
}

func (a *Actor) takeBack(ctx context.Context, inverse step.Action) error {
	if do, is := inverse.Do.(step.Delete); is &&
		slices.Contains(append(manifest.Kept(), v1alpha1.Namespace), do.Ref.Name) {
		if there, err := a.journaled(ctx); there || err != nil {
			return err
		}
	}
	_, err := a.Do(ctx, inverse, nil)
	return err
}

// journaled reports whether the cluster has a journal, or a part of one.
func (a *Actor) journaled(ctx context.Context) (bool, error) {
	for _, kind := range []string{"Migration", "PlanPage", "JournalPage"} {
		client, err := a.resource(v1alpha1.APIVersion, kind, v1alpha1.Namespace)
		if meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return false, err
		}
		list, err := client.List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil && !apierrors.IsNotFound(err) {
			return false, err
		}
		if err == nil && len(list.Items) > 0 {
			return true, nil
		}
	}
	return false, nil
}
