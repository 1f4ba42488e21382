package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/theseus-cni/theseus/internal/step"
)

const (
	// connectFor is more than a connection takes, and connectsMore how long an agent may take to begin.
	connectFor   = 3 * time.Second
	connectsMore = time.Minute
)

// Samples connects pairs of pods, by the agents of their nodes.
type Samples struct{ Actor *Actor }

// Connect lets the agent of a node connect pairs whose sources are pods of the node, one after the other.
func (s Samples) Connect(ctx context.Context, node string, pairs []step.Pair) ([]step.Try, error) {
	args, err := json.Marshal(step.ConnectArgs{Pairs: pairs})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectsMore+time.Duration(len(pairs))*connectFor)
	defer cancel()
	// The ID has the arguments: no answer to other questions is taken for this one's.
	data, err := s.Actor.Do(ctx, step.Action{ID: "sample/" + node + "/" + string(args), Do: step.Node{NodeName: node,
		Verb: step.VerbConnect, Args: args}}, nil)
	if err != nil {
		return nil, err
	}
	var answer step.ConnectResult
	if err := json.Unmarshal(data, &answer); err != nil {
		return nil, fmt.Errorf("the answer of the agent of %s: %w", node, err)
	}
	return answer.Tries, nil
}

// Gone says why a pod is not what it was; empty if it runs under its address.
func (s Samples) Gone(ctx context.Context, pod step.Pod) (string, error) {
	list, err := s.Actor.Typed.CoreV1().Pods(pod.Namespace).List(ctx, // a run may list pods, but not get each
		metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", pod.Name).String()})
	if err != nil {
		return "", err
	}
	for i := range list.Items {
		one := &list.Items[i]
		switch {
		case string(one.UID) != pod.UID:
			return "was replaced", nil
		case one.DeletionTimestamp != nil:
			return "is ending", nil
		case one.Status.Phase == corev1.PodSucceeded || one.Status.Phase == corev1.PodFailed:
			return "has ended", nil
		case one.Status.PodIP != pod.Address:
			return "has another address", nil
		default:
			return "", nil
		}
	}
	return "does not exist any more", nil
}
