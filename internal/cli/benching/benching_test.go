package benching

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/proof/bench"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// TestVerdict: a load that was stopped has its own exit code, also if something could not be removed: then both are
// said.
func TestVerdict(t *testing.T) {
	harmed := &bench.Result{Stopped: "node b is not Ready", Harmed: true}
	left := engine.WithHint(errors.New("the pods could not be removed"), "delete them")
	for name, c := range map[string]struct {
		result     *bench.Result
		err        error
		code       int
		want, hint string
	}{
		"stopped": {harmed, nil, exit.Stopped, "the load was stopped: node b is not Ready", "lower --rate"},
		"stopped, and not removed": {harmed, left, exit.Stopped,
			"the load was stopped: node b is not Ready; the pods could not be removed", "delete them"},
		"not removed": {&bench.Result{}, left, exit.Failed, "the pods could not be removed", "delete them"},
		"interrupted": {&bench.Result{Stopped: "it was interrupted"}, context.Canceled,
			exit.Interrupted, "context canceled", ""},
	} {
		err := Verdict(c.result, c.err)
		if err == nil || err.Error() != c.want || exit.Code(io.Discard, err) != c.code ||
			!strings.Contains(exit.HintOf(err), c.hint) {
			t.Errorf("%s: %v, code %d, hint: %s", name, err, exit.Code(io.Discard, err), exit.HintOf(err))
		}
	}
	if err := Verdict(&bench.Result{}, nil); err != nil {
		t.Error(err)
	}
}

// TestChoose: nodes that a user names wrongly are a mistake of the command's; a cluster without a node that is fit is
// not.
func TestChoose(t *testing.T) {
	cordoned := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.NodeSpec{Unschedulable: true},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady,
			Status: corev1.ConditionTrue}}}}
	client := &kube.Client{Typed: fake.NewClientset(cordoned)}
	a := &app.App{Streams: app.Streams{Err: io.Discard}}
	for _, c := range []struct {
		named []string
		code  int
		want  string
	}{{nil, exit.Failed, "none of 1 node is Ready"}, {[]string{"a"}, exit.Usage, "node a is cordoned"}} {
		_, err := Choose(t.Context(), a, client, c.named, bench.Defaults())
		if err == nil || exit.Code(io.Discard, err) != c.code || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, code %d", c.named, err, exit.Code(io.Discard, err))
		}
	}
	many := bench.Defaults()
	many.PolicyRules = []int{10000}
	var nodes []runtime.Object
	for i := range 117 {
		nodes = append(nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i)}})
	}
	_, err := Choose(t.Context(), a, &kube.Client{Typed: fake.NewClientset(nodes...)}, nil, many)
	if err == nil || exit.Code(io.Discard, err) != exit.Usage || !strings.Contains(err.Error(), "at most 59829") {
		t.Errorf("10,000 rules on 117 nodes: %v", err)
	}
}
