package benched

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/clustertest"
	"github.com/theseus-cni/theseus/internal/cluster/kube/kubetest"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/proof/bench"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// TestAPIServer: with a real API server, what the cluster's rules refuse is named with a hint; the client gets a plan
// with the addresses of the responders; a node that is not Ready any more stops the benchmark, as does an interrupt;
// and nothing is left each time, nor is what an earlier benchmark left.
func TestAPIServer(t *testing.T) {
	program := clustertest.Program(t, "the pods of a benchmark with a real API server")
	client := kubetest.Users(t, clustertest.ControlPlane(t, program, clustertest.Options{Collects: true}))("token")
	core := client.Typed.CoreV1()
	for _, name := range []string{"a", "b"} {
		one := node(name)
		made, err := core.Nodes().Create(t.Context(), &one, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		made.Spec.Taints = nil // of a new node; the controller takes it away when the node is Ready
		if _, err := core.Nodes().Update(t.Context(), made, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	logs := kubelet(t)
	ready := func(name string, status corev1.ConditionStatus) {
		t.Helper()
		live, err := core.Nodes().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		live.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
		live.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
		live.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(logs.port)
		if _, err := core.Nodes().UpdateStatus(t.Context(), live, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	ready("a", corev1.ConditionTrue)
	ready("b", corev1.ConditionTrue)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.Namespace,
		Labels: map[string]string{"pod-security.kubernetes.io/enforce": "baseline"}}}
	if _, err := core.Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(time.Second, func() { // as the controller does, a while after the namespace is there
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		accounts := core.ServiceAccounts(v1alpha1.Namespace)
		accounts.Create(context.Background(), account, metav1.CreateOptions{}) //nolint:errcheck // the pods would fail
	})
	kubelets, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); actAsKubelets(kubelets, client.Typed) }()
	t.Cleanup(func() { cancel(); <-ended })

	// As when the lock is held, and when it was lost: then only Client can do anything.
	var lost atomic.Bool
	fenced, err := client.Fenced(func(context.Context) error {
		if lost.Load() {
			return errors.New("the lock was lost")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	b := &Bench{Actor: run.NewActor(fenced), Client: client, Image: "registry.example.com/agent:1",
		Bounds: bench.Defaults(), Nodes: []corev1.Node{node("a"), node("b")}, Note: func(text string) { t.Log(text) }}
	made := []int{}
	nothingLeft := func(when string) {
		t.Helper()
		pods, err := core.Pods(v1alpha1.Namespace).List(t.Context(), metav1.ListOptions{})
		services, also := core.Services(v1alpha1.Namespace).List(t.Context(), metav1.ListOptions{})
		rules, too := client.Typed.NetworkingV1().NetworkPolicies(v1alpha1.Namespace).List(t.Context(),
			metav1.ListOptions{})
		if too != nil || len(rules.Items) != 0 {
			t.Errorf("%s: %v: %d policies", when, too, len(rules.Items))
		}
		if err != nil || also != nil || len(pods.Items) != 0 || len(services.Items) != 0 {
			t.Errorf("%s: %v, %v: %d pods, %d services", when, err, also, len(pods.Items), len(services.Items))
		}
	}
	refuses := func(why, hint string) {
		t.Helper()
		result, err := b.Run(t.Context())
		if result != nil || err == nil || !strings.Contains(err.Error(), why) ||
			!strings.Contains(engine.HintOf(err), hint) {
			t.Errorf("%+v, %v; hint: %s; want %s", result, err, engine.HintOf(err), why)
		}
		nothingLeft(why)
	}
	refuses("violates PodSecurity", "kubectl label --overwrite namespace "+v1alpha1.Namespace)
	if _, err := core.Namespaces().Update(t.Context(), relabelled(t, client.Typed),
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "few"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": resource.MustParse("2")}}}
	quota, err = core.ResourceQuotas(v1alpha1.Namespace).Create(t.Context(), quota, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard,
		Used: corev1.ResourceList{"pods": resource.MustParse("0")}}
	if _, err := core.ResourceQuotas(v1alpha1.Namespace).UpdateStatus(t.Context(), quota,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	refuses("exceeded quota: few", "raise the ResourceQuota")
	if err := core.ResourceQuotas(v1alpha1.Namespace).Delete(t.Context(), "few", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	// What a killed process left is replaced.
	left := manifest.BenchResponder("registry.example.com/agent:old", "b", manifest.BenchNear, "old", time.Minute, "")
	pods, err := b.Actor.Mapper.RESTMapping(left.GroupVersionKind().GroupKind(), "v1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Dynamic.Resource(pods.Resource).Namespace(v1alpha1.Namespace).Create(t.Context(), left,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	begun := func(then func(*corev1.Pod)) { // when the client runs
		for t.Context().Err() == nil {
			pod, err := core.Pods(v1alpha1.Namespace).Get(t.Context(), manifest.BenchClientName(1, 0),
				metav1.GetOptions{})
			if err == nil && pod.Status.Phase == corev1.PodRunning {
				then(pod)
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	plan, leash, read := bench.Plan{}, int64(0), make(chan struct{})
	go begun(func(pod *corev1.Pod) {
		for _, one := range pod.Spec.Containers[0].Env {
			if one.Name == "THESEUS_BENCH" {
				json.Unmarshal([]byte(one.Value), &plan) //nolint:errcheck // it is compared below
			}
		}
		leash = *pod.Spec.ActiveDeadlineSeconds
		close(read)
		ready("b", corev1.ConditionUnknown)
	})
	counts := int64(0)
	b.Addresses = func(context.Context) ([]cluster.Addresses, error) { // one pod has come since
		counts++
		return []cluster.Addresses{{Network: "n", Range: "10.1.0.0/24", Node: "b", Usable: 253, Used: counts}}, nil
	}
	result, err := b.Run(t.Context())
	if err != nil || result == nil || result.Stopped != "node b is not Ready" || !result.Harmed {
		t.Fatalf("%+v, %v", result, err)
	}
	if want := []bench.Left{{Of: "n on b", Range: "10.1.0.0/24", Usable: 253, Before: 252, After: 251}}; !slices.Equal(
		result.Addresses, want) {
		t.Errorf("%+v", result.Addresses)
	}
	<-read
	if leash > 240 || plan.Run != 1 || len(plan.Tasks) != 20 || plan.Tasks[0].Target != "10.1.0.1:7001" ||
		plan.Tasks[1].Target != "10.1.0.1:7005" || plan.Tasks[12].Target != "192.0.2.2:7101" ||
		!strings.HasSuffix(plan.Tasks[18].Target, ":7006") || plan.Counters["b"] != "192.0.2.2:7106" {
		t.Errorf("the client's plan: %+v", plan)
	}
	nothingLeft("after a node was lost")
	ready("b", corev1.ConditionTrue)

	ctx, interrupt := context.WithCancel(t.Context())
	go begun(func(*corev1.Pod) { interrupt() })
	if _, err := b.Run(ctx); !isCanceled(err) {
		t.Errorf("interrupted: %v", err)
	}
	nothingLeft("after an interrupt")

	// Whoever has lost the lock can still stop the load.
	ctx, interrupt = context.WithCancel(t.Context())
	go begun(func(*corev1.Pod) { lost.Store(true); interrupt() })
	if _, err := b.Run(ctx); !isCanceled(err) {
		t.Errorf("the lock was lost: %v", err)
	}
	nothingLeft("after the lock was lost")
	lost.Store(false)

	// Each run has a client of its own, which is gone when the next one comes; the figures of all are one result.
	logs.serve.Store(true)
	b.Bounds.Runs = 3
	result, err = b.Run(t.Context())
	if err != nil || result.Stopped != "" || len(result.Samples) != 3 || result.Samples[2].Run != 3 ||
		result.Counters["a"]["drops"] != 3 || result.Rows[0].Runs != 3 ||
		!slices.Equal(logs.of(), []string{manifest.BenchClientName(1, 0), manifest.BenchClientName(2, 0),
			manifest.BenchClientName(3, 0)}) {
		t.Errorf("%+v, %v; clients: %v", result, err, logs.of())
	}
	nothingLeft("after three runs")

	// With rules of policy, each number of rules has its policies and its client, and both are gone at the end.
	b.Bounds.Runs, b.Bounds.PolicyRules, made = 1, []int{1, 150}, nil
	policies := client.Typed.NetworkingV1().NetworkPolicies(v1alpha1.Namespace)
	b.Note = func(text string) {
		t.Log(text)
		if found, err := policies.List(t.Context(), metav1.ListOptions{}); err == nil && len(found.Items) > 0 {
			made = append(made, len(found.Items))
		}
	}
	logs.pods = nil
	result, err = b.Run(t.Context())
	if err != nil || result.Stopped != "" || len(result.Samples) != 3 || len(result.Tasks) != 28 ||
		!slices.Equal(slices.Compact(made), []int{2, 3}) ||
		!slices.Equal(logs.of(), []string{manifest.BenchClientName(1, 0), manifest.BenchClientName(1, 1),
			manifest.BenchClientName(1, 150)}) {
		t.Errorf("%+v, %v; clients: %v; policies: %v", result, err, logs.of(), made)
	}
	nothingLeft("with rules of policy")
	b.Bounds.PolicyRules = nil
	logs.serve.Store(false)

	// A pod that ends at once, as one whose port is in use, is no reason to wait.
	fails.Store(true)
	refuses("pod theseus-bench-near-host ended on node a: serve: exit code 1, Error listen tcp: address in use",
		"free the ports 7101, 7102, 7105 and 7106 of node a")
}

// reader serves the logs of clients, as kubelets do.
type reader struct {
	port  int
	serve atomic.Bool // else a log has no lines yet

	lock sync.Mutex
	pods []string
}

// kubelet serves until the test ends.
func kubelet(t *testing.T) *reader {
	t.Helper()
	r := &reader{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		pod := path.Base(path.Dir(request.URL.Path)) // /containerLogs/NAMESPACE/POD/CONTAINER
		if !r.serve.Load() {
			w.WriteHeader(http.StatusOK)
			http.NewResponseController(w).Flush() //nolint:errcheck // the reader has gone
			<-request.Context().Done()
			return
		}
		r.lock.Lock()
		defer r.lock.Unlock()
		r.pods = append(r.pods, pod)
		run, out := strings.TrimPrefix(pod, manifest.BenchPodName(manifest.BenchClient)+"-"), json.NewEncoder(w)
		run, _, _ = strings.Cut(run, "-")
		number, _ := strconv.Atoi(run)
		for _, line := range []bench.Line{{Sample: &bench.Sample{Run: number,
			Latency: &bench.Latency{P50: 1, P99: 2, P999: 3, Max: 4, Offered: 2500, Answered: 2500}}},
			{Counters: map[string]map[string]int64{"a": {"drops": 1}}}, {Done: true}} {
			out.Encode(line) //nolint:errcheck // the reader has gone
		}
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	r.port = server.Listener.Addr().(*net.TCPAddr).Port
	return r
}

// of are the pods whose logs were read.
func (r *reader) of() []string {
	r.lock.Lock()
	defer r.lock.Unlock()
	return slices.Clone(r.pods)
}

// fails makes the kubelets' responders on the host network fail.
var fails atomic.Bool

func isCanceled(err error) bool {
	return err != nil && strings.Contains(err.Error(), context.Canceled.Error())
}

func relabelled(t *testing.T, client kubernetes.Interface) *corev1.Namespace {
	t.Helper()
	live, err := client.CoreV1().Namespaces().Get(t.Context(), v1alpha1.Namespace, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	live.Labels["pod-security.kubernetes.io/enforce"] = "privileged"
	return live
}

// actAsKubelets says of every pod that it is ready, and ends those that are deleted, as their nodes would.
func actAsKubelets(ctx context.Context, client kubernetes.Interface) {
	addresses := map[string]string{"a": "1", "b": "2"}
	for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		pods, err := client.CoreV1().Pods(v1alpha1.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			continue
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			if pod.DeletionTimestamp != nil {
				err := client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name,
					metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))})
				if err != nil && !apierrors.IsNotFound(err) {
					continue
				}
			}
			if pod.Status.Phase == corev1.PodRunning || pod.Status.Phase == corev1.PodFailed {
				continue
			}
			host := "192.0.2." + addresses[pod.Spec.NodeName]
			pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, HostIP: host,
				PodIP:      "10.1.0." + addresses[pod.Spec.NodeName],
				Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
			if fails.Load() && pod.Spec.HostNetwork {
				pod.Status.Phase, pod.Status.Conditions = corev1.PodFailed, nil
				pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "serve", State: corev1.ContainerState{
					Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error",
						Message: "listen tcp: address in use\n"}}}}
			}
			pod.Status.PodIPs = []corev1.PodIP{{IP: pod.Status.PodIP}}
			pods := client.CoreV1().Pods(pod.Namespace)
			pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{}) //nolint:errcheck // it is tried again
		}
	}
}
