package run

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/clustertest"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run/report"
	"github.com/theseus-cni/theseus/internal/step"
)

// stream plays recorded plans and reports of probes into a cluster, one look after another. Its clock goes on with
// them; after the last it jumps, so that a gate that still waits runs out of time.
type stream struct {
	t        *testing.T
	client   *fake.FakeDynamicClient
	actor    *kube.Actor
	looks    []look
	now      time.Time
	evidence *kube.Evidence // of the run that is watched
	warned   []string
	server   *clustertest.APIServer // has the same, for an actor that follows; else nil
}

// look is what the cluster held at one moment.
type look struct {
	Plans   []v1alpha1.ProbePlan   `json:"plans"`
	Reports []v1alpha1.ProbeReport `json:"reports"`
}

type fixedMapper struct{ *meta.DefaultRESTMapper }

func (fixedMapper) Reset() {}

// newStream reads testdata/stream.jsonl: trackers of seven paths on three nodes for 24 s. The prober b/old does not
// run from 4.0 s to 6.5 s; a/old>b/old loses three probes at 7.5 s; b/host is gone from 10.05 s to 11.5 s, while its
// second responder answers; at 12 s the report of c holds a result of a's path; two denied probes of c are answered
// at 15 s, when its agent restarts; and c/old is gone from 18.05 s to 18.5 s, which has no second responder.
func newStream(t *testing.T, follows bool) *stream {
	t.Helper()
	data, err := os.ReadFile("testdata/stream.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	mapper, lists := meta.NewDefaultRESTMapper(nil), map[schema.GroupVersionResource]string{}
	for _, kind := range []string{"ProbePlan", "ProbeReport"} {
		gvk := schema.GroupVersionKind{Group: v1alpha1.Group, Version: v1alpha1.Version, Kind: kind}
		mapper.Add(gvk, meta.RESTScopeNamespace)
		plural, _ := meta.UnsafeGuessKindToResource(gvk)
		lists[plural] = kind + "List"
	}
	s := &stream{t: t, client: fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists),
		evidence: kube.NewEvidence(kube.Collected{})}
	s.actor = &kube.Actor{Dynamic: s.client, Mapper: fixedMapper{mapper}, Clock: s,
		Note: func(text string) { s.warned = append(s.warned, text) }}
	if follows {
		s.server = clustertest.NewAPIServer(t)
		client, err := kube.New(s.server.Config, "test")
		if err != nil {
			t.Fatal(err)
		}
		stop, err := s.actor.Follow(t.Context(), client)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stop)
	}
	for _, line := range bytes.Split(bytes.TrimSpace(data), []byte("\n")) {
		var one look
		if err := json.Unmarshal(line, &one); err != nil {
			t.Fatal(err)
		}
		s.looks = append(s.looks, one)
	}
	return s
}

// next plays the next look, which the run collects.
func (s *stream) next() {
	s.t.Helper()
	for i := range s.looks[0].Plans {
		s.put("ProbePlan", s.looks[0].Plans[i].Name, &s.looks[0].Plans[i])
	}
	for i := range s.looks[0].Reports {
		s.put("ProbeReport", s.looks[0].Reports[i].Name, &s.looks[0].Reports[i])
	}
	s.now, s.looks = s.looks[0].Reports[0].Status.At, s.looks[1:]
	if s.server != nil && len(s.looks)%5 == 0 {
		s.server.Cut()
	}
	if err := s.evidence.Collect(s.t.Context(), s.actor); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stream) put(kind, name string, object any) {
	s.t.Helper()
	if s.server != nil {
		s.server.Put(s.t, kind, name, object)
	}
	text, err := json.Marshal(object)
	if err != nil {
		s.t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(text, &u.Object); err != nil {
		s.t.Fatal(err)
	}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: v1alpha1.Group, Version: v1alpha1.Version, Kind: kind})
	u.SetNamespace(v1alpha1.Namespace)
	plural, _ := meta.UnsafeGuessKindToResource(u.GroupVersionKind())
	if _, err := s.client.Tracker().Get(plural, v1alpha1.Namespace, name); err != nil {
		err = s.client.Tracker().Create(plural, u, v1alpha1.Namespace)
		if err != nil {
			s.t.Fatal(err)
		}
		return
	}
	if err := s.client.Tracker().Update(plural, u, v1alpha1.Namespace); err != nil {
		s.t.Fatal(err)
	}
}

// Now and Sleep make it the clock of gates.
func (s *stream) Now() time.Time { return s.now }

func (s *stream) Sleep(context.Context, time.Duration) error {
	if len(s.looks) == 0 {
		s.now = s.now.Add(time.Hour)
		return nil
	}
	s.next()
	return nil
}

// TestOneAccount: gates, the view of a run, status and the report find the same in one recorded stream, by lists and by
// a watch that is cut off at every fifth look.
func TestOneAccount(t *testing.T) {
	verdicts := map[bool][]string{}
	for _, follows := range []bool{false, true} {
		t.Run(map[bool]string{false: "lists", true: "follows"}[follows], func(t *testing.T) {
			verdicts[follows] = oneAccount(t, newStream(t, follows))
		})
	}
	if diff := cmp.Diff(verdicts[false], verdicts[true]); diff != "" {
		t.Errorf("gates say otherwise (-lists +watch):\n%s", diff)
	}
}

// oneAccount returns the verdicts of the gates.
func oneAccount(t *testing.T, s *stream) (verdicts []string) {
	s.next()
	gate := &kube.Gate{Actor: s.actor, Since: []v1alpha1.ProbeReport{}}
	gates := Seen{Paths: 7, Excused: 19} // gates say what is excused in words alone
	var passed []bool
	for len(s.looks) > 0 {
		v, err := gate.Ask(t.Context(), step.Gate{}, func(context.Context) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		passed = append(passed, v.Pass)
		verdicts = append(verdicts, fmt.Sprintf("%+v", v))
		t.Logf("%s: %s", s.now.Format("05.00"), v.Reason)
		gates.Sent, gates.Lost, gates.Leaked = gates.Sent+v.Sent, gates.Lost+v.Lost, gates.Leaked+v.Leaked
		gates.LongestGapMillis = max(gates.LongestGapMillis, v.LongestGapMillis)
		live := SeenIn(s.evidence.Document())
		if live.Sent != gates.Sent || live.Lost != gates.Lost || live.Leaked != gates.Leaked {
			t.Errorf("the view shows %+v at %s, and gates have counted %+v", live, s.now.Format("05.00"), gates)
		}
	}
	live := SeenIn(s.evidence.Document())
	if live != gates {
		t.Errorf("the view shows %+v, and gates counted %+v", live, gates)
	}
	if want := (Seen{Paths: 7, Sent: gates.Sent, Lost: 7, Excused: 19, Leaked: 2,
		LongestGapMillis: 400}); gates != want {
		t.Errorf("gates counted %+v, not %+v", gates, want)
	}
	if len(s.warned) == 0 {
		t.Error("nothing is said of the result that another node reported")
	}
	s.sameInStatus(live)
	s.sameInReport(live)
	return verdicts
}

// sameInStatus: status, in another process, reads what the run kept and what the cluster holds.
func (s *stream) sameInStatus(live Seen) {
	r := &Run{Dir: s.t.TempDir(), View: &listener{}}
	r.save(s.evidence.Document())
	evidence, err := Gather(s.t.Context(), s.actor, "m", r.Dir, false)
	if err != nil {
		s.t.Fatal(err)
	}
	if of, err := Gather(s.t.Context(), s.actor, "m", s.t.TempDir(), true); err != nil || len(of.Paths) > 0 {
		s.t.Errorf("status of a run that has ended has the paths of another: %d, %v", len(of.Paths), err)
	}
	if got := SeenIn(evidence); got != live {
		s.t.Errorf("status says %+v, and the view showed %+v", got, live)
	}
}

func (s *stream) sameInReport(live Seen) {
	document := s.evidence.Document()
	m := report.Build(report.Input{Paths: document.Paths, Reports: Reports(document)})
	t := m.Totals
	got := Seen{Paths: t.Paths + t.Denied, Sent: t.Sent + t.DeniedSent, Lost: t.Lost,
		Excused: t.Excused, Leaked: t.Leaked, LongestGapMillis: t.ProbeGapMillis}
	if got != live {
		s.t.Errorf("the report says %+v, and the view showed %+v", got, live)
	}
	late, lost := int64(0), map[string]int64{}
	for _, node := range m.Nodes {
		late += node.Excused
		lost[node.Name] = node.Lost
	}
	if late != 2 || lost["a"] != 3 || lost["b"] != 7 || lost["c"] != 4 {
		s.t.Errorf("%d answers were late, not 2; lost by node: %v", late, lost)
	}
}
