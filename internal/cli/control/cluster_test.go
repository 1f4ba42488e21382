package control

import (
	"bytes"
	"context"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/clitest"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/follow"
	"github.com/theseus-cni/theseus/internal/cli/incluster"
	"github.com/theseus-cni/theseus/internal/cli/interrupt"
	"github.com/theseus-cni/theseus/internal/cli/report"
	"github.com/theseus-cni/theseus/internal/cluster/clustertest"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/kube/kubetest"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// notAsked are rights of the role look that TestAPIServer does not use, and what does.
var notAsked = map[string]string{
	"list migrations.theseus.dev":    "a command without a migration's name finds the latest one",
	"get journalpages.theseus.dev":   "a journal that grows is read page by page (journal.Tail)",
	"watch probeplans.theseus.dev":   "a run that measures is watched",
	"watch probereports.theseus.dev": "a run that measures is watched",
	"list planpages.theseus.dev":     "the live page shows a plan to those who have this right",
	"list approvals.theseus.dev":     "people see who has approved (kubectl get approvals)",
	"get changes.theseus.dev":        "people see what becomes of a Change (kubectl get changes)",
	"list changes.theseus.dev":       "people see what becomes of a Change (kubectl get changes)",
}

// serving are a pod and its owner: a report counts the restarts of workloads. No pod is admitted without an account.
var serving = []unstructured.Unstructured{
	{Object: map[string]any{"apiVersion": "v1", "kind": "ServiceAccount",
		"metadata": map[string]any{"name": "default", "namespace": "default"}}},
	{Object: map[string]any{"apiVersion": "apps/v1", "kind": "ReplicaSet",
		"metadata": map[string]any{"name": "web", "namespace": "default"},
		"spec": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"app": "web"}},
			"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "web"}},
				"spec": map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}}}}}},
	{Object: map[string]any{"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": "web-1", "namespace": "default", "labels": map[string]any{"app": "web"},
			"ownerReferences": []any{map[string]any{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web",
				"uid": "u", "controller": true}}},
		"spec": map[string]any{"automountServiceAccountToken": false,
			"containers": []any{map[string]any{"name": "c", "image": "i"}}}}},
}

// TestAPIServer: with a real API server, the role of `theseus rights look` is enough to see how a migration stands, to
// follow it and to read its report, and each of its rights is used for that, or has a reason.
func TestAPIServer(t *testing.T) {
	program := clustertest.Program(t, "the role look with a real API server")
	t.Setenv("THESEUS_STATE_DIR", t.TempDir())
	config := clustertest.ControlPlane(t, program, clustertest.Options{Users: []string{"eve"}})
	admin := kubetest.Users(t, config)("token")
	if err := run.Prepare(t.Context(), admin); err != nil {
		t.Fatal(err)
	}
	roles, err := kube.Roles(kube.Look, "", nil, []kube.Subject{{Kind: rbacv1.UserKind, Name: "eve"}})
	if err != nil {
		t.Fatal(err)
	}
	kubetest.Apply(t, admin, append(roles, serving...)...)
	p := begun(t, admin)
	kubetest.Apply(t, admin, refusedPods()...)

	var asked requests
	config = rest.CopyConfig(config)
	config.Wrap(asked.note)
	eve := kubetest.Users(t, config)("eve")
	commands := map[string]func(context.Context, *app.App) error{
		"status": func(ctx context.Context, a *app.App) error { return status(ctx, a, eve, p.Name) },
		"report": func(ctx context.Context, a *app.App) error { return report.Show(ctx, a, eve, p, nil) },
		"watch": func(ctx context.Context, a *app.App) error {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			return follow.Run(ctx, a, eve, p.Name, 0)
		},
	}
	shows := func(name string) string {
		var out bytes.Buffer
		a := &app.App{Streams: app.Streams{In: &bytes.Buffer{}, Out: &out, Err: &out},
			Signals: &interrupt.Signals{Err: &out}}
		code := exit.Code(&out, commands[name](t.Context(), a))
		want := map[string]int{"watch": exit.Interrupted}[name] // it follows until it is stopped
		if code != want || strings.Contains(strings.ReplaceAll(out.String(), quotaSays, ""), "forbidden") {
			t.Errorf("%s: exit %d, want %d:\n%s", name, code, want, out.String())
		}
		return out.String()
	}
	for name := range commands {
		if out := shows(name); name == "status" && !strings.Contains(out, quotaSays+"\nhint: raise the ResourceQuota") {
			t.Errorf("it does not say why the controller does not run:\n%s", out)
		}
	}
	for i := range roles {
		rules, _, _ := unstructured.NestedSlice(roles[i].Object, "rules")
		for _, rule := range rules {
			for _, right := range rightsIn(rule) {
				why, known := notAsked[right]
				if used := asked.has(right); used == known {
					t.Errorf("%s: used %v; %s", right, used, why)
				}
			}
		}
	}
	unpulled(t, admin)
	out := shows("status")
	if !strings.Contains(out, "node n1 cannot get the image reg.test/controller:none of pod "+
		"theseus-system/theseus-controller-5d8f-x2: ErrImagePull: lookup reg.test: no such host\n"+
		"hint: correct the name of the image") ||
		!strings.Contains(out, "image.registry and imagePullSecrets of the chart") {
		t.Errorf("it does not say that the controller's image cannot be pulled:\n%s", out)
	}
	dies(t, admin, p)
	for name, says := range map[string]string{"status": "does not run it now: ", "report": "\nnext: ",
		"watch": "bob@gone/1 has not renewed its lock "} {
		if out := shows(name); !strings.Contains(out, says) || strings.Contains(out, "bob@gone/1 is running") {
			t.Errorf("%s of a migration whose process ended:\n%s", name, out)
		}
	}
}

// dies leaves a migration as a process on another machine does that ends in its first step.
func dies(t *testing.T, admin *kube.Client, p *plan.Plan) {
	t.Helper()
	if err := journal.NewCluster(admin.Dynamic, p.Name).Append(t.Context(),
		clitest.Records(t, p, engine.Record{Event: engine.StepBegan, Step: p.Steps[0].ID})...); err != nil {
		t.Fatal(err)
	}
	dead := clustertest.DeadLease()
	lock, err := run.Leases(admin).Get(t.Context(), dead.Name, metav1.GetOptions{})
	if err == nil {
		lock.Spec = dead.Spec
		_, err = run.Leases(admin).Update(t.Context(), lock, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// quotaSays is the API server's answer to the controller of a ReplicaSet.
const quotaSays = `pods "theseus-controller-5d8f-x2" is forbidden: exceeded quota: few, requested: pods=1`

// refusedPods are the Deployment of Theseus' controller, and an event that says why it has no pods.
func refusedPods() []unstructured.Unstructured {
	now := time.Now().UTC().Format(time.RFC3339)
	labels := map[string]any{"app": "theseus"}
	return []unstructured.Unstructured{
		{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment",
			"metadata": map[string]any{"name": "theseus-controller", "namespace": v1alpha1.Namespace},
			"spec": map[string]any{"selector": map[string]any{"matchLabels": labels},
				"template": map[string]any{"metadata": map[string]any{"labels": labels},
					"spec": map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}}}}}},
		{Object: map[string]any{"apiVersion": "v1", "kind": "Event",
			"metadata": map[string]any{"name": "refused", "namespace": v1alpha1.Namespace},
			"involvedObject": map[string]any{"kind": "ReplicaSet", "namespace": v1alpha1.Namespace,
				"name": "theseus-controller-5d8f"},
			"reason": "FailedCreate", "message": "Error creating: " + quotaSays, "type": "Warning",
			"firstTimestamp": now, "lastTimestamp": now, "count": int64(1),
			"source": map[string]any{"component": "replicaset-controller"}}},
	}
}

// unpulled makes the pod of the controller, whose image its node cannot pull.
func unpulled(t *testing.T, admin *kube.Client) {
	t.Helper()
	const name, image = "theseus-controller-5d8f-x2", "reg.test/controller:none"
	kubetest.Apply(t, admin,
		unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ServiceAccount",
			"metadata": map[string]any{"name": "default", "namespace": v1alpha1.Namespace}}},
		unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod",
			"metadata": map[string]any{"name": name, "namespace": v1alpha1.Namespace,
				"labels": map[string]any{"app": "theseus"}},
			"spec": map[string]any{"nodeName": "n1", "automountServiceAccountToken": false,
				"containers": []any{map[string]any{"name": "c", "image": image}}}}})
	pods := admin.Typed.CoreV1().Pods(v1alpha1.Namespace)
	pod, err := pods.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{Name: "c",
		Image: image, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
			Reason: "ErrImagePull", Message: "lookup reg.test: no such host"}}}}}
	if _, err := pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// begun is a plan that the controller is to run.
func begun(t *testing.T, admin *kube.Client) *plan.Plan {
	t.Helper()
	p := clitest.Plan(t, admin)
	var out bytes.Buffer
	err := incluster.Begin(t.Context(), &app.App{Streams: app.Streams{In: &out, Out: &out, Err: &out}}, admin, p)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// requests are what a client asked the API server for, as "verb resource.group".
type requests struct {
	mu  sync.Mutex
	all []string
}

// of takes the group, the resource and the name from the path of a request for objects.
var of = regexp.MustCompile(`^/(?:api|apis/([^/]+))/[^/]+(?:/namespaces/[^/]+)?/([^/]+)(?:/([^/]+))?$`)

func (r *requests) note(next http.RoundTripper) http.RoundTripper {
	return transport(func(request *http.Request) (*http.Response, error) {
		if found := of.FindStringSubmatch(request.URL.Path); found != nil && request.Method == http.MethodGet {
			verb := "list"
			switch {
			case request.URL.Query().Get("watch") == "true":
				verb = "watch"
			case found[3] != "":
				verb = "get"
			}
			r.mu.Lock()
			r.all = append(r.all, strings.TrimSuffix(verb+" "+found[2]+"."+found[1], "."))
			r.mu.Unlock()
		}
		return next.RoundTrip(request)
	})
}

func (r *requests) has(right string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.all, right)
}

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// rightsIn are the rights of a rule, as requests has them.
func rightsIn(rule any) (all []string) {
	fields, _ := rule.(map[string]any)
	groups, _, _ := unstructured.NestedStringSlice(fields, "apiGroups")
	resources, _, _ := unstructured.NestedStringSlice(fields, "resources")
	verbs, _, _ := unstructured.NestedStringSlice(fields, "verbs")
	for _, resource := range resources {
		for _, verb := range verbs {
			all = append(all, strings.TrimSuffix(verb+" "+resource+"."+groups[0], "."))
		}
	}
	return all
}
