package benched

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/proof/bench"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// TestWatch: everything that makes a node unfit for load stops it, on either node; so does one node that cannot be
// read, while the other can.
func TestWatch(t *testing.T) {
	for _, c := range []struct {
		is, want string
	}{
		{"down", "node b is not Ready"}, {"cordoned", "node b is cordoned"},
		{"tainted", "node b has the taint gpu:NoSchedule"}, {"going", "node b is being deleted"},
		{"full", "node b has the condition DiskPressure"}, {"apart", "node b has the condition NetworkUnavailable"},
		{"away", "node b could not be watched for 10s"}, {"", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			a, b := node("a"), node("b", c.is)
			client := fake.NewClientset(&a, &b)
			client.PrependReactor("get", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
				if c.is == "away" && action.(clienttesting.GetAction).GetName() == "b" {
					return true, nil, errors.New("the API server is away")
				}
				return false, nil, nil
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			begun := time.Now()
			err := (&Bench{Client: &kube.Client{Typed: client}, Nodes: []corev1.Node{a, b}}).watch(ctx)
			took := time.Since(begun)
			if got := errorText(err); !strings.HasPrefix(got, c.want) || (c.want == "") != (err == nil) ||
				err != nil && took > blind {
				t.Errorf("%s: after %s: %v", c.is, took, err)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestUp: a pod that will never be ready ends the wait with what to do; one that waits for too long does so too, and
// says for what.
func TestUp(t *testing.T) {
	pod := func(change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "far-host", Namespace: v1alpha1.Namespace,
			Labels: map[string]string{manifest.LabelBenchID: "id", manifest.LabelBench: manifest.BenchFarHost}},
			Spec: corev1.PodSpec{NodeName: "b", HostNetwork: true}}
		change(p)
		return p
	}
	client := func(conduct, work corev1.ContainerState) *corev1.Pod {
		return pod(func(p *corev1.Pod) {
			p.Labels[manifest.LabelBench], p.Status = manifest.BenchClient, clientStatus(conduct, work)
		})
	}
	for name, c := range map[string]struct {
		pod         *corev1.Pod
		want, hint  string
		least, most time.Duration
	}{
		"refused by the kubelet": {pod(func(p *corev1.Pod) {
			p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfpods", Message: "too many pods"}
		}), "pod far-host ended on node b: OutOfpods too many pods", "--nodes", 0, time.Second},
		"its port is in use": {pod(func(p *corev1.Pod) {
			p.Status = corev1.PodStatus{Phase: corev1.PodFailed,
				ContainerStatuses: []corev1.ContainerStatus{{Name: "serve",
					State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1,
						Reason: "Error", Message: "listen: in use"}}}}}
		}), "serve: exit code 1, Error listen: in use", "7101, 7102, 7105 and 7106 of node b", 0, time.Second},
		"no image": {pod(func(p *corev1.Pod) {
			p.Status = corev1.PodStatus{Phase: corev1.PodPending,
				ContainerStatuses: []corev1.ContainerStatus{{Name: "serve",
					State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff",
						Message: "no such image"}}}}}
		}), "not ready after 3m0s: pod far-host is not ready on node b: ImagePullBackOff no such image",
			"get events", ready, ready + time.Second},
		"nothing heard": {pod(func(*corev1.Pod) {}), "pod far-host is not ready on node b",
			"get events", ready, ready + time.Second},
		"ready": {pod(func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}), "", "", 0, time.Second},
		"a client that ended at once": {client(exited(0, ""), runs), "", "", 0, time.Second},
		"a client that refused its plan": {client(exited(2, "Error"), runs),
			"pod far-host ended on node b: conduct: exit code 2, Error", "--nodes", 0, time.Second},
		"a client whose worker was killed": {client(runs, exited(137, "OOMKilled")),
			"pod far-host ended on node b: work: exit code 137, OOMKilled", "--nodes", 0, time.Second},
		"a client whose worker ended": {client(runs, exited(0, "")), "pod far-host is not ready on node b",
			"get events", ready, ready + time.Second},
		"deleted": {nil, "pod far-host was deleted by someone else", "", 0, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			client := fake.NewClientset()
			if c.pod != nil {
				client = fake.NewClientset(c.pod)
			}
			begun := time.Now()
			pods, err := (&Bench{Client: &kube.Client{Typed: client}, id: "id"}).up(t.Context(), "far-host")
			took := time.Since(begun)
			if got := errorText(err); !strings.Contains(got, c.want) || (c.want == "") != (err == nil) ||
				!strings.Contains(engine.HintOf(err), c.hint) || took < c.least || took > c.most {
				t.Errorf("%s: after %s: %v; hint: %s", name, took, err, engine.HintOf(err))
			}
			if err == nil && pods[c.pod.Labels[manifest.LabelBench]] == nil {
				t.Errorf("%s: %v", name, pods)
			}
		})
	}
}

// runs and exited are the states of a container.
var runs = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}

func exited(code int32, why string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: why}}
}

// clientStatus is that of a client that runs, with the states of its containers.
func clientStatus(conduct, work corev1.ContainerState) corev1.PodStatus {
	return corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
		{Name: manifest.BenchConductor, State: conduct}, {Name: "work", State: work}}}
}

// TestOver: a client with a container that failed is over, although the pod runs on; one that has carried out its plan
// is not: its log has the last line, and is read again.
func TestOver(t *testing.T) {
	const early = "the client's pod ended before the benchmark was done: "
	for name, c := range map[string]struct {
		status corev1.PodStatus
		want   string
	}{
		"runs":           {clientStatus(runs, runs), ""},
		"done":           {clientStatus(exited(0, ""), runs), ""},
		"plan refused":   {clientStatus(exited(2, "Error"), runs), early + "conduct: exit code 2, Error"},
		"worker killed":  {clientStatus(runs, exited(137, "OOMKilled")), early + "work: exit code 137, OOMKilled"},
		"evicted client": {corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}, early + "Evicted"},
	} {
		client := fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "client",
			Namespace: v1alpha1.Namespace}, Status: c.status})
		err := (&Bench{Client: &kube.Client{Typed: client}}).over(t.Context(), "client")
		if got := errorText(err); got != c.want || (err != nil && engine.HintOf(err) == "") {
			t.Errorf("%s: %q, want %q; hint: %s", name, got, c.want, engine.HintOf(err))
		}
	}
}

// TestNotRemoved: if nothing can be removed, a person is told until when the load goes on, and how to end it.
func TestNotRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "client",
			Namespace: v1alpha1.Namespace, Labels: map[string]string{manifest.LabelBenchID: "id"}}})
		client.PrependReactor("delete", "pods",
			func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, nil })
		b := &Bench{Client: &kube.Client{Typed: client}, Note: func(string) {}, leash: time.Now().Add(time.Hour)}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		begun := time.Now()
		err := b.remove(ended, manifest.LabelBenchID+"=id")
		if took := time.Since(begun); took > removal+time.Second || err == nil ||
			!strings.Contains(err.Error(), "the load ends by itself, at "+b.leash.UTC().Format(time.TimeOnly)) ||
			!strings.Contains(engine.HintOf(err),
				"kubectl -n theseus-system delete pods,services,networkpolicies -l theseus.dev/bench") {
			t.Errorf("after %s: %v; hint: %s", took, err, engine.HintOf(err))
		}
	})
}

// TestMayRule: before any pod is made, a missing right to make or to remove policies is named; the requests change
// nothing. Without policies, nothing is asked.
func TestMayRule(t *testing.T) {
	for _, lacks := range []string{"", "patch", "delete"} {
		asked := map[string][]string{}
		answer := func(verb string, dry []string, otherwise error) (bool, runtime.Object, error) {
			asked[verb] = dry
			if verb == lacks {
				return true, nil, apierrors.NewForbidden(networkingv1.Resource("networkpolicies"), "",
					errors.New(`User "u" cannot `+verb+` resource "networkpolicies"`))
			}
			return true, &unstructured.Unstructured{}, otherwise
		}
		typed, dynamic := fake.NewClientset(), dynamicfake.NewSimpleDynamicClient(scheme.Scheme)
		dynamic.PrependReactor("patch", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
			return answer("patch", action.(clienttesting.PatchActionImpl).PatchOptions.DryRun, nil)
		})
		typed.PrependReactor("delete", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
			return answer("delete", action.(clienttesting.DeleteActionImpl).DeleteOptions.DryRun,
				apierrors.NewNotFound(networkingv1.Resource("networkpolicies"), "theseus-bench-rules-0"))
		})
		synctest.Test(t, func(t *testing.T) {
			b := &Bench{Client: &kube.Client{Typed: typed, Dynamic: dynamic}, Note: func(string) {}}
			if err := b.mayRule(t.Context()); err != nil || len(asked) != 0 {
				t.Errorf("without policies: %v, %v", err, asked)
			}
			b.Bounds.PolicyRules = []int{10}
			err := b.mayRule(t.Context())
			if got := errorText(err); lacks == "" && err != nil || !strings.Contains(got, lacks) ||
				err != nil && !strings.Contains(engine.HintOf(err), "create, patch, list and delete") {
				t.Errorf("without the right to %s: %v; hint: %s", lacks, err, engine.HintOf(err))
			}
		})
		for verb, dry := range asked {
			if !slices.Equal(dry, []string{metav1.DryRunAll}) {
				t.Errorf("%s is no dry run: %v", verb, dry)
			}
		}
		if lacks != "patch" && len(asked) != 2 {
			t.Errorf("asked: %v", asked)
		}
	}
}

// fixedMapper knows no kind, and looks up none.
type fixedMapper struct{ *meta.DefaultRESTMapper }

func (fixedMapper) Reset() {}

// TestPoliciesGoLast: while the load may go on, because ctx has ended, policies stay; Run removes the pods first.
// Without that, they go with the plan that they are for.
func TestPoliciesGoLast(t *testing.T) {
	for _, interrupted := range []bool{true, false} {
		client := fake.NewClientset()
		var asked []string
		client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if resource := action.GetResource().Resource; action.GetVerb() == "list" {
				asked = append(asked, resource)
			}
			return false, nil, nil
		})
		b := &Bench{Client: &kube.Client{Typed: client}, Actor: &kube.Actor{Typed: client,
			Mapper: fixedMapper{meta.NewDefaultRESTMapper(nil)}},
			Note: func(string) {}, id: "id", Nodes: []corev1.Node{node("a")},
			Bounds: bench.Bounds{Runs: 1, PolicyRules: []int{1}}}
		ctx, cancel := context.WithCancel(t.Context())
		if interrupted {
			cancel()
		}
		if err := b.ruled(ctx, bench.Plan{Run: 1}, 1, &bench.Result{}); err == nil {
			t.Error("policies could be made without a mapper")
		}
		cancel()
		if want := !interrupted; want != slices.Contains(asked, "networkpolicies") {
			t.Errorf("interrupted: %v: %v", interrupted, asked)
		}
		asked = nil
		err := b.remove(ctx, manifest.LabelBenchID+"=id")
		if want := []string{"pods", "services", "networkpolicies"}; err != nil || !slices.Equal(asked, want) {
			t.Errorf("%v, %v, want %v", err, asked, want)
		}
	}
}

// TestCountersOfRuns: each run has a client of its own, and the kernel's counters of all runs add up; a note that each
// client makes is one.
func TestCountersOfRuns(t *testing.T) {
	b := &Bench{Note: func(string) {}}
	result := &bench.Result{Counters: map[string]map[string]int64{}}
	for range 3 {
		b.take(result, bench.Line{Counters: map[string]map[string]int64{"a": {"drops": 2}}})
		b.take(result, bench.Line{Note: "not known"})
	}
	if result.Counters["a"]["drops"] != 6 || len(result.Notes) != 1 {
		t.Errorf("%v, %v", result.Counters, result.Notes)
	}
}
