package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/guard"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/clustertest"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/network/drivers"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/step"
)

// store is an API server that keeps objects, without schemas, admission and watches.
type store struct {
	lock    sync.Mutex
	objects map[string]map[string]any // by path
	version int
	writes  []string
	// refuse, if set, answers a request with an error, unless it returns 0.
	refuse func(method, path string) (code int, message string)
	// before, if set, is called once, before the next write to a path with this ending.
	before map[string]func()
}

// kinds are the kinds that a store has, by their resources.
var kinds = map[string]string{"nodes": "Node", "pods": "Pod", "services": "Service", "events": "Event",
	"daemonsets": "DaemonSet", "leases": "Lease", "configmaps": "ConfigMap", "migrations": "Migration",
	"planpages": "PlanPage", "journalpages": "JournalPage", "probeplans": "ProbePlan", "probereports": "ProbeReport"}

const (
	ours   = "/apis/" + v1alpha1.Group + "/" + v1alpha1.Version
	leases = "/apis/coordination.k8s.io/v1/namespaces/" + v1alpha1.Namespace + "/leases"
)

// newStore serves until the test ends.
func newStore(t *testing.T) (*store, *kube.Client) {
	t.Helper()
	s := &store{objects: map[string]map[string]any{}, before: map[string]func(){}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	client, err := kube.New(&rest.Config{Host: server.URL,
		ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, "test")
	if err != nil {
		t.Fatal(err)
	}
	return s, client
}

// ServeHTTP implements http.Handler.
func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		s.lock.Lock()
		s.writes = append(s.writes, r.Method+" "+r.URL.Path)
		call := s.before[path.Base(r.URL.Path)]
		delete(s.before, path.Base(r.URL.Path))
		s.lock.Unlock()
		if call != nil {
			call()
		}
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	code, answer := s.answer(r)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(answer)
}

func failure(code int, reason metav1.StatusReason, message string) (int, any) {
	return code, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure",
		Code: int32(code), Reason: reason, Message: message}
}

// answer answers a request. The caller holds the lock.
func (s *store) answer(r *http.Request) (int, any) {
	at := r.URL.Path
	if s.refuse != nil {
		if code, message := s.refuse(r.Method, at); code != 0 {
			return failure(code, map[int]metav1.StatusReason{http.StatusForbidden: metav1.StatusReasonForbidden}[code],
				message)
		}
	}
	var body map[string]any
	if r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch {
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			return failure(http.StatusBadRequest, "", err.Error())
		}
	}
	if r.Method == http.MethodPost {
		at += "/" + body["metadata"].(map[string]any)["name"].(string)
		if s.objects[at] != nil {
			return failure(http.StatusConflict, metav1.StatusReasonAlreadyExists, at)
		}
		return http.StatusCreated, s.put(at, body)
	}
	resource, isList := kinds[path.Base(at)]
	switch known := s.objects[at]; {
	case at == "/api":
		return http.StatusOK, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}}
	case at == "/apis":
		version := metav1.GroupVersionForDiscovery{GroupVersion: v1alpha1.APIVersion, Version: v1alpha1.Version}
		return http.StatusOK, metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"},
			Groups: []metav1.APIGroup{{Name: v1alpha1.Group, Versions: []metav1.GroupVersionForDiscovery{version},
				PreferredVersion: version}}}
	case at == ours:
		list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
			GroupVersion: v1alpha1.APIVersion}
		for _, kind := range []string{"ProbePlan", "ProbeReport"} {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: manifest.Plural(kind), Kind: kind,
				Namespaced: true, Verbs: metav1.Verbs{"list"}})
		}
		return http.StatusOK, list
	case isList:
		items, label := []any{}, r.URL.Query().Get("labelSelector")
		for _, one := range slices.Sorted(maps.Keys(s.objects)) {
			labels, _ := s.objects[one]["metadata"].(map[string]any)["labels"].(map[string]any)
			key, value, valued := strings.Cut(label, "=")
			if path.Dir(one) == at && (label == "" || labels[key] == value || !valued && labels[key] != nil) {
				items = append(items, s.objects[one])
			}
		}
		version, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(path.Dir(at), "/apis/"), "/api/"),
			"/namespaces")
		return http.StatusOK, map[string]any{"apiVersion": version, "kind": resource + "List",
			"metadata": map[string]any{}, "items": items}
	case known == nil:
		return failure(http.StatusNotFound, metav1.StatusReasonNotFound, at)
	case r.Method == http.MethodDelete:
		delete(s.objects, at)
		return http.StatusOK, known
	case r.Method == http.MethodPut:
		return http.StatusOK, s.put(at, body)
	case r.Method == http.MethodPatch:
		return http.StatusOK, s.put(at, merged(known, body))
	default:
		return http.StatusOK, known
	}
}

func merged(into, change map[string]any) map[string]any {
	into = maps.Clone(into)
	for key, value := range change {
		if deeper, ok := value.(map[string]any); ok {
			old, _ := into[key].(map[string]any)
			value = merged(old, deeper)
		}
		if into == nil {
			into = map[string]any{}
		}
		into[key] = value
	}
	return into
}

// put keeps an object. The caller holds the lock.
func (s *store) put(at string, object map[string]any) map[string]any {
	s.version++
	object["metadata"] = merged(object["metadata"].(map[string]any),
		map[string]any{"resourceVersion": strconv.Itoa(s.version), "uid": "u" + path.Base(at),
			"namespace": v1alpha1.Namespace})
	s.objects[at] = object
	return object
}

// add keeps an object of a Go type.
func (s *store) add(t *testing.T, at string, object any) {
	t.Helper()
	text, err := json.Marshal(object)
	var fields map[string]any
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	s.put(at, fields)
}

// wrote are the writes since the call before, of which the paths contain a text.
func (s *store) wrote(what string) (found []string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	for _, one := range s.writes {
		if strings.Contains(one, what) {
			found = append(found, one)
		}
	}
	s.writes = nil
	return found
}

// guardPlan is the plan of a guard that measures what others change.
func guardPlan(t *testing.T) *plan.Plan {
	t.Helper()
	snapshot := cnitest.Snapshot(t, cnitest.Fixture(t, "flannel.yaml"))
	draft, err := guard.Propose(&kind.Request{Snapshot: snapshot,
		Change: v1alpha1.ChangeSpec{AgentImage: "theseus.dev/agent:dev"}, Drivers: drivers.All(),
		Options: plan.Options{Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Name: "g"}},
		kind.Guard{Others: true, Quiet: step.Duration(time.Second), AtMost: step.Duration(time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Seal(snapshot, draft)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// goesOn runs a guard until it measures or, once the changes have ended, to its end.
func goesOn(t *testing.T, client *kube.Client, p *plan.Plan, ended bool) engine.Outcome {
	t.Helper()
	r := &Run{Client: client, Plan: p, Ended: ended}
	if err := journal.Create(t.Context(), client.Dynamic, p); err != nil {
		t.Fatal(err)
	}
	outcome, err := engine.Run(t.Context(), p,
		engine.Deps{Actor: idle{}, Gate: idle{}, Journal: journal.NewCluster(client.Dynamic, p.Name), Clock: Clock{},
			Control: journal.NewControl(client.Dynamic, p.Name), Hold: r.measuring, Epoch: 1})
	if err != nil || outcome.State.Over() != ended || outcome.State.Measures() == ended {
		t.Fatalf("%+v, %v", outcome, err)
	}
	return outcome
}

// standing is a cluster in which a guard measures, and which keeps evidence of 9 probes; 5 more are in a report.
func standing(t *testing.T) (*store, *kube.Client, *plan.Plan) {
	t.Helper()
	s, client := newStore(t)
	p := guardPlan(t)
	goesOn(t, client, p, false)
	kept := kube.NewEvidence(kube.Collected{Paths: []v1alpha1.Path{{ID: "n/old>m/old"}},
		Results: []v1alpha1.PathResult{{ID: "n/old>m/old", Sent: 9, Answered: 9, Since: time.Unix(1, 0).UTC()}}})
	if err := newArchive(client.Dynamic, p.Name).save(t.Context(), kept); err != nil {
		t.Fatal(err)
	}
	in := ours + "/namespaces/" + v1alpha1.Namespace
	meta := metav1.ObjectMeta{Name: "n"}
	s.add(t, in+"/probeplans/n", v1alpha1.ProbePlan{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.APIVersion,
		Kind: "ProbePlan"}, ObjectMeta: meta,
		Spec: v1alpha1.ProbePlanSpec{Paths: []v1alpha1.Path{{ID: "n/new>m/new"}}}})
	s.add(t, in+"/probereports/n", v1alpha1.ProbeReport{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.APIVersion,
		Kind: "ProbeReport"}, ObjectMeta: meta,
		Status: v1alpha1.ProbeReportStatus{
			Paths: []v1alpha1.PathResult{{ID: "n/new>m/new", Sent: 5, Answered: 5, Since: time.Unix(2, 0).UTC()}}}})
	s.wrote("")
	return s, client, p
}

// onlooker looks at a guard, and keeps what it says.
func onlooker(t *testing.T, client *kube.Client, p *plan.Plan) (*Looking, *[]string) {
	said := &[]string{}
	return &Looking{Client: client, Plan: p, Dir: t.TempDir(), Holder: "ann@there/1",
		Say: func(text string) { *said = append(*said, text) }}, said
}

// TestLookAtAnEndedGuard: a look at a guard that has ended takes no lock, and leaves its evidence as it is: the probes
// in the cluster are those of another migration by then.
func TestLookAtAnEndedGuard(t *testing.T) {
	t.Run("before", func(t *testing.T) {
		s, client, p := standing(t)
		goesOn(t, client, p, true)
		s.wrote("")
		l, said := onlooker(t, client, p)
		_, seen, err := l.Report(t.Context())
		if err != nil || seen.Sent != 9 || len(*said) > 0 {
			t.Errorf("%+v, %v, said %q", seen, err, *said)
		}
		if wrote := s.wrote(""); len(wrote) > 0 {
			t.Errorf("it wrote %q", wrote)
		}
		unread := filepath.Join(l.Dir, WatchedFile+".unread")
		if err := os.WriteFile(unread, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		input, err := ReportInput(t.Context(), client, p, l.Dir, func(text string) { t.Error(text) })
		if err != nil || len(input.Paths) != 1 || !slices.Equal(input.Unread, []string{unread}) {
			t.Errorf("the report has the paths %+v, and %q was not read, %v", input.Paths, input.Unread, err)
		}
	})
	t.Run("while it waits for the lock", func(t *testing.T) {
		s, client, p := standing(t)
		s.before["leases"] = func() { goesOn(t, client, p, true) }
		l, _ := onlooker(t, client, p)
		_, seen, err := l.Report(t.Context())
		if err != nil || seen.Sent != 9 {
			t.Errorf("%+v, %v", seen, err)
		}
		if wrote := s.wrote("configmaps"); len(wrote) > 0 {
			t.Errorf("it wrote %q", wrote)
		}
	})
}

// TestLook: a look keeps what it sees if it gets the lock, that of a process which has ended without releasing it too.
// What it cannot do it says, and goes on without.
func TestLook(t *testing.T) {
	gone := func(s *store) { s.add(t, leases+"/"+manifest.Lease, clustertest.DeadLease()) }
	for name, test := range map[string]struct {
		given  func(*store)
		runs   bool // another process has the lock
		keeps  bool
		says   string
		within time.Duration
	}{
		"nobody has the lock": {keeps: true},
		"its holder is gone":  {given: gone, keeps: true},
		"another process has taken it": {runs: true, says: "note: the cluster's state of this look is not stored: " +
			"bob@elsewhere/2 is " +
			"running a migration on this cluster, since "},
		"this user may only read": {given: refusing("leases", http.StatusForbidden),
			says: "note: the cluster's state of this look is not stored: ", within: 10 * time.Second},
		"nodes cannot be listed": {given: refusing("nodes", http.StatusInternalServerError), keeps: true,
			says: "note: this look lacks the state of the cluster: "},
		"this user lists no nodes": {given: refusing("nodes", http.StatusForbidden), keeps: true,
			says: "this user may not list nodes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, client, p := standing(t)
			if test.given != nil {
				test.given(s)
			}
			if test.runs {
				defer elsewhere(t, client)()
			}
			l, said := onlooker(t, client, p)
			begun := time.Now()
			_, seen, err := l.Report(t.Context())
			if err != nil || seen.Sent != 14 {
				t.Fatalf("%+v, %v", seen, err)
			}
			if took := time.Since(begun); test.within > 0 && took > test.within {
				t.Errorf("it took %s", took)
			}
			if all := strings.Join(*said, "\n"); !strings.Contains(all, test.says) || (all == "") != (test.says == "") {
				t.Errorf("it said %q, want %q", all, test.says)
			}
			if wrote := s.wrote("configmaps"); (len(wrote) > 0) != test.keeps {
				t.Errorf("it wrote %q", wrote)
			}
		})
	}
}

// elsewhere lets another process have the lock, until the function that it returns is called.
func elsewhere(t *testing.T, client *kube.Client) (release func()) {
	t.Helper()
	lease, _, err := journal.Acquire(t.Context(), Leases(client), "bob@elsewhere/2")
	if err != nil {
		t.Fatal(err)
	}
	return func() { lease.Release(context.WithoutCancel(t.Context())) } //nolint:errcheck
}

// TestLookFollows: a look leads paths to the address that a probe pod has after its node restarted, with the lock only,
// and says so once. If it cannot, it says that, and goes on.
func TestLookFollows(t *testing.T) {
	const plans = ours + "/namespaces/" + v1alpha1.Namespace + "/probeplans/"
	leads := func(s *store) string {
		s.lock.Lock()
		defer s.lock.Unlock()
		text, err := json.Marshal(s.objects[plans+"n"])
		var read v1alpha1.ProbePlan
		if err = errors.Join(err, json.Unmarshal(text, &read)); err != nil || len(read.Spec.Paths) != 1 {
			t.Fatalf("%s, %v", text, err)
		}
		return read.Spec.Paths[0].Target.Address
	}
	for name, test := range map[string]struct {
		given func(*store)
		runs  bool
		leads string
		says  string
	}{
		"a new address": {leads: "10.1.0.9:4000", says: kube.Followed("m")},
		"another process has taken it": {runs: true, leads: "10.1.0.1:4000", says: "note: the cluster's state of " +
			"this " +
			"look is " +
			"not stored: "},
		"no plan can be written": {given: func(s *store) {
			s.refuse = func(method, at string) (int, string) {
				if method == http.MethodPatch && strings.Contains(at, "/probeplans/") {
					return http.StatusForbidden, "no"
				}
				return 0, ""
			}
		}, leads: "10.1.0.1:4000", says: "may still lead to the former one: no"},
	} {
		t.Run(name, func(t *testing.T) {
			s, client, p := standing(t)
			s.add(t, plans+"n", v1alpha1.ProbePlan{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.APIVersion,
				Kind: "ProbePlan"}, ObjectMeta: metav1.ObjectMeta{Name: "n", Namespace: v1alpha1.Namespace},
				Spec: v1alpha1.ProbePlanSpec{Paths: []v1alpha1.Path{{ID: "n/new>m/new",
					Target: v1alpha1.Endpoint{Node: "m", Network: "old", Address: "10.1.0.1:4000"}}}}})
			s.add(t, "/api/v1/namespaces/"+v1alpha1.Namespace+"/pods/theseus-probe-old-m", corev1.Pod{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
				ObjectMeta: metav1.ObjectMeta{Name: "theseus-probe-old-m",
					Labels: map[string]string{v1alpha1.LabelProbe: "old"}},
				Spec: corev1.PodSpec{NodeName: "m"},
				Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.1.0.9",
					Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}})
			if test.given != nil {
				test.given(s)
			}
			if test.runs {
				defer elsewhere(t, client)()
			}
			l, said := onlooker(t, client, p)
			if _, seen, err := l.Report(t.Context()); err != nil || seen.Sent != 14 {
				t.Fatalf("%+v, %v", seen, err)
			}
			if got := leads(s); got != test.leads {
				t.Errorf("the path leads to %s, want %s", got, test.leads)
			}
			if len(*said) != 1 || !strings.Contains((*said)[0], test.says) {
				t.Errorf("said %q, want %q", *said, test.says)
			}
			if *said = nil; test.given == nil && !test.runs {
				if _, err := l.Look(t.Context()); err != nil || len(*said) > 0 {
					t.Errorf("the second look said %q, %v", *said, err)
				}
			}
		})
	}
}

// refusing answers calls about a resource with an error: all of them, or if that is a refusal of leases, the writes.
func refusing(resource string, code int) func(*store) {
	return func(s *store) {
		s.refuse = func(method, at string) (int, string) {
			if strings.Contains(at, "/"+resource) && (resource != "leases" || method != http.MethodGet) {
				return code, fmt.Sprintf(`User "eve" cannot %s resource %q`, method, resource)
			}
			return 0, ""
		}
	}
}

// TestMayBegin: what may refuse a plan is asked with the lock in hand, and before the cluster has the plan.
func TestMayBegin(t *testing.T) {
	s, client := newStore(t)
	held, refusal := "", errors.New("another migration has not ended")
	r := &Run{Client: client, Plan: guardPlan(t), Dir: t.TempDir(), Begins: true, Holder: "ann@there/1",
		MayBegin: func(ctx context.Context) error {
			holder, err := journal.Holding(ctx, Leases(client), time.Time{}, func(string) {})
			if holder != nil {
				held = holder.Holder
			}
			return errors.Join(err, refusal)
		}}
	if _, err := r.Execute(t.Context()); !errors.Is(err, refusal) || held != "ann@there/1" {
		t.Errorf("%v, with the lock of %q", err, held)
	}
	if wrote := s.wrote(ours); len(wrote) > 0 {
		t.Errorf("it wrote %q", wrote)
	}
	if holder, err := journal.Holding(t.Context(), Leases(client), time.Time{},
		func(string) {}); holder != nil || err != nil {
		t.Errorf("the lock stays: %v, %v", holder, err)
	}
}
