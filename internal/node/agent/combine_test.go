package agent

import (
	"encoding/json"
	"log/slog"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/proof/probe"
)

func from(id, node, network string) v1alpha1.Path {
	return v1alpha1.Path{ID: id, Source: v1alpha1.Endpoint{Node: node, Network: network}}
}

func TestSplit(t *testing.T) {
	paths := []v1alpha1.Path{from("a", "n1", "old"), from("b", "n2", "old"), from("c", "n1", "host"),
		from("d", "n1", "new"), from("e", "n1", "old")}
	got := map[string][]string{}
	for network, list := range split(paths, "n1") {
		for _, p := range list {
			got[network] = append(got[network], p.ID)
		}
	}
	want := map[string][]string{"old": {"a", "e"}, "host": {"c"}, "new": {"d"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestCombine(t *testing.T) {
	result := func(id string) v1alpha1.PathResult { return v1alpha1.PathResult{ID: id, Sent: 1} }
	now := time.Now()
	old := []v1alpha1.Path{from("b", "n1", "old")}
	both := map[string][]v1alpha1.Path{"old": old, "new": {from("c", "n1", "new")}}
	for _, c := range []struct {
		name       string
		wanted     map[string][]v1alpha1.Path
		pods       map[string]probe.ResultsFile
		generation int64
		ids        []string
	}{
		{"the host's prober is silent", map[string][]v1alpha1.Path{"host": {from("n1/host>a", "n1", "host")}},
			nil, 0, nil},
		{"the host's prober is up to date", map[string][]v1alpha1.Path{"host": {from("n1/host>a", "n1", "host")}},
			map[string]probe.ResultsFile{"host": {Generation: 7, Paths: []v1alpha1.PathResult{result("n1/host>a")}}},
			7, []string{"n1/host>a"}},
		{"a pod that is up to date", map[string][]v1alpha1.Path{"old": old},
			map[string]probe.ResultsFile{"old": {Generation: 7, Paths: []v1alpha1.PathResult{result("n1/old>b")}}},
			7, []string{"n1/old>b"}},
		{"a pod that is behind", both,
			map[string]probe.ResultsFile{"old": {Generation: 7},
				"new": {Generation: 6, Paths: []v1alpha1.PathResult{result("n1/new>c")}}}, 6, []string{"n1/new>c"}},
		{"a pod that is silent", both, map[string]probe.ResultsFile{"old": {Generation: 7}}, 0, nil},
		{"a pod that has gone leaves its last results", nil,
			map[string]probe.ResultsFile{"old": {Generation: 5, Paths: []v1alpha1.PathResult{result("n1/old>b")}}},
			7, []string{"n1/old>b"}},
		{"a pod that speaks of others", nil,
			map[string]probe.ResultsFile{"old": {Generation: 7, Paths: []v1alpha1.PathResult{result("n2/old>b"),
				result("n1/new>c"), result("n1/host>d"), result("e")}}}, 7, nil},
		{"a pod that still measures what it is to leave", nil,
			map[string]probe.ResultsFile{"old": {Generation: 5, At: now.Add(-time.Second)}}, 5, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := combine("n1", 7, c.wanted, c.pods, now)
			var ids []string
			for _, r := range got.Paths {
				ids = append(ids, r.ID)
			}
			if got.Generation != c.generation {
				t.Errorf("generation %d, want %d", got.Generation, c.generation)
			}
			if diff := cmp.Diff(c.ids, ids); diff != "" {
				t.Errorf("paths (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCountedAt: the counts of a report are as old as those of the prober that has been silent for the longest, of
// those that have paths to measure.
func TestCountedAt(t *testing.T) {
	read := time.Now()
	file := func(age time.Duration) probe.ResultsFile { return probe.ResultsFile{At: read.Add(-age).Round(0)} }
	paths := []v1alpha1.Path{from("b", "n1", "old")}
	both := map[string][]v1alpha1.Path{"old": paths, "new": paths}
	for name, test := range map[string]struct {
		wanted map[string][]v1alpha1.Path
		found  map[string]probe.ResultsFile
		least  time.Duration
		most   time.Duration
	}{
		"nothing to measure": {map[string][]v1alpha1.Path{"old": {}}, nil, 0, 0},
		"the older of two":   {both, map[string]probe.ResultsFile{"old": file(3e9), "new": file(1e9)}, 3e9, 3e9},
		"one that does not count": {map[string][]v1alpha1.Path{"new": paths},
			map[string]probe.ResultsFile{"old": file(3e9), "new": file(1e9)}, 1e9, 1e9},
		"none yet":               {both, map[string]probe.ResultsFile{"old": file(1e9)}, time.Hour, 1 << 62},
		"the clock was set back": {both, map[string]probe.ResultsFile{"old": file(-1e12), "new": file(-1e12)}, 0, 0},
	} {
		const slack = time.Millisecond
		got := min(read.Sub(countedAt(test.wanted, test.found, read)), 1<<62) // there is no file of the year 1
		if got < test.least-slack || got > test.most+slack {
			t.Errorf("%s: counts of %s ago", name, got)
		}
	}
}

// TestForget removes what probers of an earlier migration left, once, and minds nothing that is not there.
func TestForget(t *testing.T) {
	a := &Agent{Probers: Folder(t.TempDir()), Log: slog.New(slog.NewTextHandler(testLog{t}, nil))}
	if err := probe.MakeFolders(dir(a), networks()); err != nil {
		t.Fatal(err)
	}
	file := probe.ResultsPath(dir(a), "new")
	if err := probe.WriteResults(file, probe.ResultsFile{Generation: 7}); err != nil {
		t.Fatal(err)
	}
	a.forget()
	if results := a.results(); len(results) != 0 {
		t.Errorf("still there: %v", results)
	}
	a.forget()
}

// TestGoneSince: from when a prober was last heard of to when it began again it was gone; a pod that was made again was
// not, nor was one of which nobody asked anything.
func TestGoneSince(t *testing.T) {
	at := func(second int) time.Time { return time.Date(2026, 11, 24, 3, 0, second, 0, time.UTC) }
	part := func(name, pod string, since, heard int, gone ...v1alpha1.Absence) v1alpha1.Part {
		one := v1alpha1.Part{Name: name, Pod: pod, Since: at(since), Gone: gone}
		if heard > 0 {
			one.At = at(heard)
		}
		return one
	}
	was := v1alpha1.Absence{From: at(1), To: at(2)}
	for _, test := range []struct {
		name        string
		before, now v1alpha1.Part
		want        []v1alpha1.Absence
	}{
		{"it runs on", part("host", "a", 2, 10, was), part("host", "a", 2, 11), []v1alpha1.Absence{was}},
		{"it restarted", part("host", "a", 2, 10, was), part("host", "a", 14, 15),
			[]v1alpha1.Absence{was, {From: at(10), To: at(14)}}},
		{"it restarted after the clock was set back", part("host", "a", 12, 20), part("host", "a", 5, 6),
			[]v1alpha1.Absence{{From: at(5), To: at(5)}}},
		{"its DaemonSet made another pod", part("host", "a", 2, 10), part("host", "b", 14, 15),
			[]v1alpha1.Absence{{From: at(10), To: at(14)}}},
		{"a probe pod restarted", part("old", "a", 2, 10), part("old", "a", 14, 15),
			[]v1alpha1.Absence{{From: at(10), To: at(14)}}},
		{"a probe pod was made again", part("old", "a", 2, 10), part("old", "b", 14, 15), nil},
		{"nothing was asked of it", part("host", "a", 2, 0), part("host", "a", 14, 15), nil},
		{"it is another part", part("old", "a", 2, 10), part("new", "a", 14, 15), nil},
	} {
		got := goneSince([]v1alpha1.Part{test.before}, []v1alpha1.Part{test.now})[0].Gone
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
	var many []v1alpha1.Part
	for i := range maxGone + 5 {
		many = goneSince(many, []v1alpha1.Part{part("host", "a", 2*i, 2*i+1)})
	}
	if got := many[0].Gone; len(got) != maxGone || !got[maxGone-1].To.Equal(at(2*(maxGone+4))) {
		t.Errorf("%d absences are kept", len(got))
	}
}

// TestGoneBetweenReports: a report that is made while a prober starts, and has no results, does not hide its absence,
// nor an earlier one.
func TestGoneBetweenReports(t *testing.T) {
	a, _ := newAgent(t)
	p := &publisher{agent: a, known: true}
	at := func(second int) time.Time { return time.Date(2026, 11, 27, 3, 0, second, 0, time.UTC) }
	was := v1alpha1.Absence{From: at(1), To: at(2)}
	p.parts = []v1alpha1.Part{{Name: "host", Pod: "a", Since: at(2), At: at(3), Gone: []v1alpha1.Absence{was}}}
	for _, parts := range [][]v1alpha1.Part{
		{{Name: "host", Pod: "a", Since: at(2), At: at(10)}}, nil, nil,
		{{Name: "host", Pod: "a", Since: at(14), At: at(15)}},
	} {
		if err := p.try(t.Context(), v1alpha1.ProbeReportStatus{Generation: 1, Parts: parts}); err != nil {
			t.Fatal(err)
		}
	}
	var report v1alpha1.ProbeReport
	if !get(t, a, "ProbeReport", "node-1", &report) || len(report.Status.Parts) != 1 {
		t.Fatalf("%+v", report.Status)
	}
	want := []v1alpha1.Absence{was, {From: at(10), To: at(14)}}
	if diff := cmp.Diff(want, report.Status.Parts[0].Gone); diff != "" {
		t.Errorf("absences (-want +got):\n%s", diff)
	}
}

// TestPackedAndLossy: when every path has lost probes, and when all are well again, one write replaces the report, and
// nothing of the packed results before stays in it.
func TestPackedAndLossy(t *testing.T) {
	a, client := newAgent(t)
	p := &publisher{agent: a}
	begun := time.Date(2026, 11, 27, 3, 0, 0, 0, time.UTC)
	well := v1alpha1.PathResult{ID: "node-1/old>a", Sent: 9, Answered: 9, Since: begun, Last: begun}
	lossy := v1alpha1.PathResult{ID: "node-1/old>a", Sent: 9, Answered: 8, Gaps: []v1alpha1.Gap{{From: begun}}}
	for n, result := range []v1alpha1.PathResult{lossy, well, lossy, lossy, well} {
		client.ClearActions()
		if err := p.try(t.Context(), v1alpha1.ProbeReportStatus{Generation: 1,
			Paths: []v1alpha1.PathResult{result}}); err != nil {
			t.Fatal(err)
		}
		object, err := a.resource("ProbeReport").Get(t.Context(), "node-1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, has, _ := unstructured.NestedFieldNoCopy(object.Object, "status", "packed")
		var read v1alpha1.ProbeReport
		if !get(t, a, "ProbeReport", "node-1", &read) || len(read.Status.Paths) != 1 || p.inFull ||
			p.seq != int64(n+1) || has != (len(result.Gaps) == 0) ||
			read.Status.Paths[0].Answered != result.Answered {
			t.Errorf("report %d, number %d, in full %v: %+v", n, p.seq, p.inFull, object.Object["status"])
		}
	}
}

// TestPackedReport: the agent packs what is well. Where the CRD does not have the field, the API server leaves it out,
// and the agent writes all results in full, at once.
func TestPackedReport(t *testing.T) {
	for _, old := range []bool{false, true} {
		a, client := newAgent(t)
		if old {
			drop := func(action clienttesting.Action) (bool, runtime.Object, error) {
				if patch, is := action.(clienttesting.PatchActionImpl); is {
					text := regexp.MustCompile(`,"packed":"[^"]*"`).ReplaceAll(patch.Patch, nil)
					object := &unstructured.Unstructured{}
					err := json.Unmarshal(text, &object.Object)
					object.Object["metadata"] = map[string]any{"name": "node-1", "namespace": v1alpha1.Namespace}
					object.SetAPIVersion(v1alpha1.APIVersion)
					object.SetKind("ProbeReport")
					if err == nil {
						err = client.Tracker().Update(gvr("ProbeReport"), object, v1alpha1.Namespace)
					}
					return true, object, err
				}
				return false, nil, nil
			}
			client.PrependReactor("patch", "probereports", drop)
		}
		p := &publisher{agent: a}
		begun := time.Date(2026, 11, 27, 3, 0, 0, 0, time.UTC)
		for n := range int64(3) {
			well := v1alpha1.PathResult{ID: "node-1/old>a", Sent: n, Answered: n, Since: begun, Last: begun}
			lossy := v1alpha1.PathResult{ID: "node-1/old>b", Sent: 9, Answered: 8, Gaps: []v1alpha1.Gap{{From: begun}}}
			if err := p.try(t.Context(), v1alpha1.ProbeReportStatus{Generation: 1,
				Paths: []v1alpha1.PathResult{well, lossy}}); err != nil {
				t.Fatal(err)
			}
			object, err := a.resource("ProbeReport").Get(t.Context(), "node-1", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var raw, read v1alpha1.ProbeReport
			if err := decode(object, &raw); err != nil {
				t.Fatal(err)
			}
			// the first report is created, and this API server drops the field of patches alone
			inFull := old && n > 0
			if inFull != (len(raw.Status.Paths) == 2) || inFull != (raw.Status.Packed == "") {
				t.Errorf("an old CRD %v, report %d: %+v", old, n, raw.Status)
			}
			if !get(t, a, "ProbeReport", "node-1", &read) || len(read.Status.Paths) != 2 ||
				read.Status.Paths[0].Sent != n || read.Status.Paths[1].Sent != 9 {
				t.Errorf("an old CRD %v, report %d is read as %+v", old, n, read.Status)
			}
		}
		if p.inFull != old || p.seq != map[bool]int64{false: 3, true: 4}[old] {
			t.Errorf("an old CRD %v: in full %v, %d reports", old, p.inFull, p.seq)
		}
	}
}
