package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/proof/path"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// noJournal is a journal that cannot be written while broken.
type noJournal struct{ broken bool }

func (j *noJournal) Append(context.Context, ...engine.Record) error {
	if j.broken {
		return errors.New("no")
	}
	return nil
}

func (*noJournal) Records(context.Context) ([]engine.Record, error) { return nil, nil }

// full has a value of every metric.
func full(t *testing.T) *Metrics {
	t.Helper()
	m := New("v0")
	action := step.Action{ID: "a", Do: step.Node{Verb: "join"}}
	p := &plan.Plan{Name: "p", Steps: []step.Step{{ID: "s", Actions: []step.Action{action}}, {ID: "t"}}}
	m.Migrations([]v1alpha1.Migration{{}, migration("q", "needs-person", "NeedsPerson")})
	m.Begin(p, nil)
	seq := 0
	record := func(after time.Duration, r engine.Record) {
		seq++
		r.Seq, r.At = seq, start.Add(after)
		m.Record(r)
	}
	record(0, engine.Record{Event: engine.Started, Data: []byte(`{"steps":2}`)})
	record(0, engine.Record{Event: engine.StepBegan, Step: "s"})
	record(time.Second, engine.Record{Event: engine.Intended, Step: "s", Action: "a",
		Inverse: &step.Action{ID: "a.inverse", Do: step.Node{Verb: "part"}}})
	record(2*time.Second, engine.Record{Event: engine.Acted, Step: "s", Action: "a", Result: engine.ResultDone})
	record(3*time.Second, engine.Record{Event: engine.GateAsked, Step: "s"})
	record(33*time.Second, engine.Record{Event: engine.GateAnswer, Step: "s", Verdict: &engine.Verdict{Pass: true}})
	record(34*time.Second, engine.Record{Event: engine.StepDone, Step: "s"})
	j := &noJournal{}
	_ = m.Journal(j).Append(t.Context())
	j.broken = true
	_ = m.Journal(j).Append(t.Context())
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	answer, err := (&http.Client{Transport: m.Transport(http.DefaultTransport)}).Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	measure(m, account(2, counted(0)), start)
	measure(m, account(2, counted(3)), start.Add(10*time.Second))
	measure(m, account(2, counted(3)), start.Add(20*time.Second))
	measure(m, account(2, counted(3)), start.Add(30*time.Second))
	return m
}

func migration(name, phase, degraded string) v1alpha1.Migration {
	m := v1alpha1.Migration{}
	m.Name, m.Status.Phase = name, phase
	m.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionDegraded, Status: "True", Reason: degraded}}
	return m
}

// measure takes an account all of whose paths are planned.
func measure(m *Metrics, account loss.Account, at time.Time) {
	var planned []v1alpha1.Path
	for _, p := range account {
		planned = append(planned, p.Path)
	}
	m.Measured(account, planned, at)
}

// counted is the result of a path of which some probes were lost, in one gap of 300 ms.
func counted(lost int64) func(v1alpha1.Path) v1alpha1.PathResult {
	return func(p v1alpha1.Path) v1alpha1.PathResult {
		r := v1alpha1.PathResult{ID: p.ID, Sent: 100 + lost, Since: start, Last: start.Add(9 * time.Second)}
		gap := v1alpha1.Gap{From: start.Add(time.Second), Millis: 300, Probes: lost}
		switch {
		case p.Denied:
			r.Answered = lost
		default:
			r.Answered, r.RTTCounts = 100, []int64{90, 10}
		}
		if lost > 0 {
			r.Gaps = []v1alpha1.Gap{gap}
		}
		return r
	}
}

// account has paths of every class from every node.
func account(nodes int, of func(v1alpha1.Path) v1alpha1.PathResult) loss.Account {
	var paths []v1alpha1.Path
	var reports []v1alpha1.ProbeReport
	for i := range nodes {
		node := fmt.Sprintf("node-%d", i)
		report := v1alpha1.ProbeReport{}
		report.Name = node
		for _, class := range path.Classes() {
			for k := range 2 {
				p := v1alpha1.Path{ID: fmt.Sprintf("%s/new>%d/%s", node, k, class), Class: class,
					Denied: class == path.ClassDenied, Source: v1alpha1.Endpoint{Node: node}}
				paths = append(paths, p)
				report.Status.Paths = append(report.Status.Paths, of(p))
			}
		}
		reports = append(reports, report)
	}
	return loss.NewAccount(paths, nil, reports, 0)
}

// TestLint: names and types are as Prometheus asks for.
func TestLint(t *testing.T) {
	problems, err := testutil.GatherAndLint(full(t).Gatherer())
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		t.Errorf("%s: %s", problem.Metric, problem.Text)
	}
}

// TestAccount: the numbers are those of the account that gates and the report use.
func TestAccount(t *testing.T) {
	m := full(t)
	want := map[string]int64{}
	for _, p := range account(2, counted(3)) {
		of := p.Class + " " + p.Source.Node + " "
		if p.Denied {
			want[of+resultBlocked] += p.Sent - p.Leaked
			want[of+resultDeniedAnswered] += p.Leaked
			continue
		}
		want[of+resultAnswered] += p.Answered
		want[of+resultLost] += p.Lost
	}
	got := map[string]int64{}
	for _, metric := range family(t, m, "theseus_path_probes_total").GetMetric() {
		got[strings.Join(values(metric), " ")] = int64(metric.GetCounter().GetValue())
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the metrics have %v\nthe account %v", got, want)
	}
	for _, metric := range family(t, m, "theseus_path_gap_duration_seconds").GetMetric() {
		if h := metric.GetHistogram(); h.GetSampleCount() != 2 || h.GetSampleSum() != 0.6 {
			t.Errorf("gaps of %v: %v", values(metric), h)
		}
	}
	for _, metric := range family(t, m, "theseus_path_round_trip_seconds").GetMetric() {
		if h, denied := metric.GetHistogram(), values(metric)[0] == path.ClassDenied; !denied &&
			h.GetSampleCount() != 200 || denied && h.GetSampleCount() != 0 {
			t.Errorf("round trips of %v: %v", values(metric), h)
		}
	}
}

// TestNeverDecreases: a loss that is excused soon is never counted as lost, and no counter decreases.
func TestNeverDecreases(t *testing.T) {
	m := New("v0")
	m.Begin(&plan.Plan{Name: "p"}, nil)
	before, allowed := 0.0, allowedPaths()
	for second, n := range []int64{0, 5, 5, 5, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
		1, 1, 1, 1, 1, 1, 1, 1, 1, 1} {
		measure(m, account(1, counted(n)), start.Add(time.Duration(second)*time.Second))
		now := lostOf(t, m)
		if now < before || now > allowed {
			t.Fatalf("after %d s, %v are lost, before %v", second, now, before)
		}
		before = now
	}
	if before != allowed { // one of each path
		t.Errorf("in the end, %v are lost", before)
	}
	m.Begin(&plan.Plan{Name: "p"}, nil) // another process takes over: what is in the evidence is settled
	measure(m, account(1, counted(4)), start)
	if lost := lostOf(t, m); lost != 4*allowed {
		t.Errorf("after a restart, %v are lost", lost)
	}
}

// mostSeries is what one scrape may have of a cluster of 5,000 nodes.
const mostSeries = 165_000

// TestSeries: the number of series is bounded, with many nodes, and with more than there may be.
func TestSeries(t *testing.T) {
	// with probes that were late, and with some that are excused
	everything := func(p v1alpha1.Path) v1alpha1.PathResult {
		r := counted(1)(p)
		if !p.Denied {
			r.Excused = 1
		}
		return r
	}
	for nodes, most := range map[int]int{3: 1900, mostHistograms: 140_000, 6000: mostSeries} {
		m := New("v0")
		m.Begin(&plan.Plan{Name: "p"}, nil)
		all := account(nodes, everything)
		for i := range nodes { // the name of no class
			p := *all[0]
			p.Class, p.ID, p.Source.Node = "strange", fmt.Sprintf("node-%d/strange", i), fmt.Sprintf("node-%d", i)
			all = append(all, &p)
		}
		for _, p := range all {
			if !p.Denied {
				p.Excused = 1
			}
		}
		measure(m, all, start)
		measure(m, all, start.Add(30*time.Second))
		for _, result := range []string{resultLate, resultExcused} {
			if nodes == 3 && !slices.ContainsFunc(family(t, m, "theseus_path_probes_total").GetMetric(),
				func(one *dto.Metric) bool { return slices.Contains(values(one), result) }) {
				t.Fatalf("no probe is %s", result)
			}
		}
		families, err := m.Gatherer().Gather()
		if err != nil {
			t.Fatal(err)
		}
		series := 0
		for _, family := range families {
			for _, metric := range family.GetMetric() {
				series++
				if h := metric.GetHistogram(); h != nil {
					series += len(h.GetBucket()) + 2
				}
			}
		}
		t.Logf("%d nodes: %d series", nodes, series)
		if series > most {
			t.Errorf("%d nodes have %d series, at most %d are allowed", nodes, series, most)
		}
	}
}

// TestPaths: a path's ID is in no label, and what the plans of agents name does not make series without a limit.
func TestPaths(t *testing.T) {
	m := New("v0")
	m.Begin(&plan.Plan{Name: "p"}, nil)
	var strange []v1alpha1.Path
	report := v1alpha1.ProbeReport{}
	for i := range 1000 {
		p := v1alpha1.Path{ID: fmt.Sprintf("a/new>%d/x", i), Class: fmt.Sprintf("class-%d", i),
			Source: v1alpha1.Endpoint{Node: "a"}}
		strange = append(strange, p)
		report.Status.Paths = append(report.Status.Paths, counted(0)(p))
	}
	measure(m, loss.NewAccount(strange, nil, []v1alpha1.ProbeReport{report}, 0), start)
	if metrics := family(t, m, "theseus_path_probes_total").GetMetric(); len(metrics) != 2 ||
		values(metrics[0])[0] != other {
		t.Errorf("%v", metrics)
	}
}

// TestRun: durations are from the journal's own times, also of a step that an earlier process began.
func TestRun(t *testing.T) {
	m := full(t)
	for name, want := range map[string]float64{"theseus_step_duration_seconds": 34,
		"theseus_gate_duration_seconds": 30} {
		for _, metric := range family(t, m, name).GetMetric() {
			h := metric.GetHistogram()
			if good := values(metric)[0] == "done" || values(metric)[0] == "passed"; good &&
				(h.GetSampleCount() != 1 || h.GetSampleSum() != want) || !good && h.GetSampleCount() != 0 {
				t.Errorf("%s of %v: %v", name, values(metric), h)
			}
		}
	}
	if err := testutil.GatherAndCompare(m.Gatherer(), strings.NewReader(
		`# HELP theseus_tasks_total Number of actions that are tasks of agents on nodes, by verb and result (done, already, failed).
# TYPE theseus_tasks_total counter
theseus_tasks_total{result="done",verb="join"} 1
# HELP theseus_journal_writes_total Number of writes to the journal; result is ok or error. A write has one record or a few.
# TYPE theseus_journal_writes_total counter
theseus_journal_writes_total{result="error"} 1
theseus_journal_writes_total{result="ok"} 1
# HELP theseus_api_requests_total Number of answers of the API server, by HTTP status code and method.
# TYPE theseus_api_requests_total counter
theseus_api_requests_total{code="404",method="get"} 1
# HELP theseus_migrations_degraded Number of migrations whose condition Degraded is true, by its reason.
# TYPE theseus_migrations_degraded gauge
theseus_migrations_degraded{reason="NeedsPerson"} 1
# HELP theseus_run_steps_done Number of steps of that plan that are done and not undone.
# TYPE theseus_run_steps_done gauge
theseus_run_steps_done 1
`), "theseus_tasks_total", "theseus_journal_writes_total", "theseus_api_requests_total", "theseus_migrations_degraded", "theseus_run_steps_done"); err != nil {
		t.Error(err)
	}
	resumed := New("v0")
	resumed.Begin(&plan.Plan{Name: "p", Steps: []step.Step{{ID: "s"}}}, []engine.Record{{Seq: 1, At: start,
		Event: engine.Started}, {Seq: 2, At: start, Event: engine.StepBegan, Step: "s"}})
	resumed.Record(engine.Record{Seq: 3, At: start.Add(time.Minute), Event: engine.StepDone, Step: "s"})
	for _, metric := range family(t, resumed, "theseus_step_duration_seconds").GetMetric() {
		if values(metric)[0] == "done" && metric.GetHistogram().GetSampleSum() != 60 {
			t.Errorf("a step that was resumed: %v", metric)
		}
	}
}

// TestNil: without metrics, a run counts nothing.
func TestNil(t *testing.T) {
	var m *Metrics
	m.Begin(&plan.Plan{}, nil)()
	m.Record(engine.Record{})
	m.Measured(nil, nil, start)
	m.Migrations(nil)
	if j := (&noJournal{}); m.Journal(j) != engine.Journal(j) {
		t.Error("the journal is wrapped")
	}
}

// TestServe: the metrics are at /metrics, nothing else is served, and an address that cannot be is refused.
func TestServe(t *testing.T) {
	m := full(t)
	address, stop, err := m.Serve("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for path, status := range map[string]int{"/metrics": 200, "/": 404, "/debug/pprof/": 404} {
		answer, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || answer.StatusCode != status {
			t.Errorf("%s: %d, %v", path, answer.StatusCode, err)
		}
		if path == "/metrics" && !strings.Contains(string(text),
			`theseus_path_probes_total{class="pod-pod",node="node-0",result="lost"} 6`) {
			t.Errorf("%s", text)
		}
	}
	if answer, err := http.Post("http://"+address+"/metrics", "", nil); err != nil ||
		answer.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %v, %v", answer, err)
	}
	if _, _, err := m.Serve(address); err == nil || engine.HintOf(err) == "" {
		t.Errorf("an address in use: %v", err)
	}
	for _, bad := range []string{"9090", "localhost", "127.0.0.1:http-alt-x", "127.0.0.1:70000"} {
		if err := ValidAddress(bad); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}

func family(t *testing.T, m *Metrics, name string) *dto.MetricFamily {
	t.Helper()
	families, err := m.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range families {
		if one.GetName() == name {
			return one
		}
	}
	t.Fatalf("there is no metric %s", name)
	return nil
}

func values(metric *dto.Metric) (all []string) {
	for _, label := range metric.GetLabel() {
		all = append(all, label.GetValue())
	}
	return all
}

// allowedPaths is how many paths may be used in an account of one node: two of each class but one.
func allowedPaths() float64 { return float64(2 * (len(path.Classes()) - 1)) }

// lostOf is how many probes are counted as lost.
func lostOf(t *testing.T, m *Metrics) (sum float64) {
	t.Helper()
	for _, metric := range family(t, m, "theseus_path_probes_total").GetMetric() {
		if slices.Contains(values(metric), resultLost) {
			sum += metric.GetCounter().GetValue()
		}
	}
	return sum
}

// TestLossAfterExcuse: losses that are excused only after they were counted do not hide later ones.
func TestLossAfterExcuse(t *testing.T) {
	m := New("v0")
	m.Begin(&plan.Plan{Name: "p"}, nil)
	for second := range 90 {
		n := int64(0)
		switch {
		case second >= 60: // two are lost permanently
			n = 2
		case second >= 1 && second < 30: // five, which are excused at last
			n = 5
		}
		measure(m, account(1, counted(n)), start.Add(time.Duration(second)*time.Second))
		if second == 59 && lostOf(t, m) != 5*allowedPaths() { // five of each path
			t.Errorf("after a minute, %v are lost", lostOf(t, m))
		}
	}
	if lost := lostOf(t, m); lost != 7*allowedPaths() {
		t.Errorf("in the end, %v are lost", lost)
	}
}

// one is an account of one path of pods, whose results are given.
func one(results ...v1alpha1.PathResult) loss.Account {
	p := v1alpha1.Path{ID: "a/x", Class: path.Classes()[0], Source: v1alpha1.Endpoint{Node: "a"}}
	var reports []v1alpha1.ProbeReport
	for _, result := range results {
		result.ID = p.ID
		reports = append(reports, v1alpha1.ProbeReport{ObjectMeta: metav1.ObjectMeta{Name: "a"},
			Status: v1alpha1.ProbeReportStatus{Paths: []v1alpha1.PathResult{result}}})
	}
	return loss.NewAccount([]v1alpha1.Path{p}, nil, reports, 0)
}

// gauge is the value of a metric that has one series, or is missing.
func gauge(t *testing.T, m *Metrics, name string) (value float64, found bool) {
	t.Helper()
	families, err := m.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range families {
		if one.GetName() == name && len(one.GetMetric()) == 1 {
			return one.GetMetric()[0].GetGauge().GetValue(), true
		}
	}
	return 0, false
}

// TestOpenGap: an outage that does not end shows by its length, whatever the sender's clock says, and counts when it
// has ended.
func TestOpenGap(t *testing.T) {
	const name = "theseus_path_open_gap_seconds"
	m := New("v0")
	end := m.Begin(&plan.Plan{Name: "p"}, nil)
	ahead := start.Add(24 * time.Hour) // of this process
	result := func(millis float64, over bool) v1alpha1.PathResult {
		gap := v1alpha1.Gap{From: ahead, Millis: millis, Probes: 10}
		r := v1alpha1.PathResult{Since: ahead.Add(-time.Minute), Last: ahead.Add(time.Minute), Sent: 100, Answered: 90}
		if over {
			r.Gaps = []v1alpha1.Gap{gap}
		} else {
			r.Open = &gap
		}
		return r
	}
	ended := func() uint64 {
		return family(t, m, "theseus_path_gap_duration_seconds").GetMetric()[0].GetHistogram().GetSampleCount()
	}
	measure(m, one(v1alpha1.PathResult{Since: ahead.Add(-time.Minute), Last: ahead, Sent: 90, Answered: 90}), start)
	if value, found := gauge(t, m, name); !found || value != 0 {
		t.Errorf("without a gap: %v, %t", value, found)
	}
	measure(m, one(result(1000, false)), start.Add(time.Second))
	if value, _ := gauge(t, m, name); value != 0 {
		t.Errorf("it may be excused, but is shown: %v", value)
	}
	measure(m, one(result(30_000, false)), start.Add(31*time.Second))
	if value, _ := gauge(t, m, name); value != 30 || ended() != 0 {
		t.Errorf("the open gap: %v s, ended %d", value, ended())
	}
	again := v1alpha1.PathResult{Since: ahead.Add(2 * time.Minute), Last: ahead.Add(3 * time.Minute),
		Sent: 10, Answered: 10}
	// the sender has restarted: nothing ends the gap of the process before
	for _, after := range []time.Duration{40, 45} {
		measure(m, one(result(30_000, false), again), start.Add(after*time.Second))
		if value, _ := gauge(t, m, name); value != 0 || ended() != 0 {
			t.Errorf("after a restart: %v s, ended %d", value, ended())
		}
	}
	measure(m, one(result(30_000, false), again), start.Add(51*time.Second))
	if value, _ := gauge(t, m, name); value != 0 || ended() != 1 {
		t.Errorf("after a restart: %v s, ended %d", value, ended())
	}
	end()
	if _, found := gauge(t, m, name); found {
		t.Error("the gap is shown after the end of the run")
	}
}

// TestSilent: a node that does not measure shows, although others do, although its clock is ahead, and although it
// never measured.
func TestSilent(t *testing.T) {
	m := New("v0")
	now := start
	m.measured.now = func() time.Time { return now }
	end := m.Begin(&plan.Plan{Name: "p"}, nil)
	all := account(3, func(p v1alpha1.Path) v1alpha1.PathResult {
		if strings.HasPrefix(p.ID, "node-2") {
			return v1alpha1.PathResult{ID: p.ID}
		}
		r := counted(0)(p)
		r.Last = start.Add(24 * time.Hour)
		return r
	})
	measure(m, all, now)
	for _, test := range []struct {
		after  time.Duration
		silent float64
	}{{time.Minute, 0}, {silentAfter, 2}, {5 * time.Minute, 2}} {
		now = start.Add(test.after)
		for _, p := range all {
			if p.Source.Node == "node-1" {
				p.Sent++
			}
		}
		measure(m, all, now)
		silent, _ := gauge(t, m, "theseus_silent_nodes")
		if grew, _ := gauge(t, m, "theseus_probes_grew_timestamp_seconds"); silent != test.silent ||
			grew != float64(start.Unix()) {
			t.Errorf("after %s, %v nodes are silent, the first since %v", test.after, silent, grew)
		}
	}
	m.Measured(all, nil, now)
	if _, found := gauge(t, m, "theseus_silent_nodes"); found {
		t.Error("a node is silent, but no path is planned")
	}
	measure(m, all, now)
	end()
	if _, found := gauge(t, m, "theseus_silent_nodes"); found {
		t.Error("a node is silent, but the run has ended")
	}
}

// TestMigrations: phases are shown once they are known, and what a migration was degraded by is over when it runs.
func TestMigrations(t *testing.T) {
	m := New("v0")
	if _, err := testutil.GatherAndCount(m.Gatherer(), "theseus_migrations"); err != nil {
		t.Fatal(err)
	}
	if n, _ := testutil.GatherAndCount(m.Gatherer(), "theseus_migrations"); n != 0 {
		t.Errorf("%d phases are shown before the cluster was read", n)
	}
	listed := []v1alpha1.Migration{migration("p", "", "RightsMissing"), migration("q", "needs-person", "NeedsPerson")}
	m.Migrations(listed)
	m.Begin(&plan.Plan{Name: "p"}, nil)
	m.Record(engine.Record{Seq: 1, At: start, Event: engine.Started, Data: []byte(`{"steps":1}`)})
	want := `# HELP theseus_migrations_degraded Number of migrations whose condition Degraded is true, by its reason.
# TYPE theseus_migrations_degraded gauge
theseus_migrations_degraded{reason="NeedsPerson"} 1
`
	for range 2 {
		if err := testutil.GatherAndCompare(m.Gatherer(), strings.NewReader(want),
			"theseus_migrations_degraded"); err != nil {
			t.Error(err)
		}
		for _, one := range family(t, m, "theseus_migrations").GetMetric() {
			if phase := values(one)[0]; (phase == "running" ||
				phase == "needs-person") != (one.GetGauge().GetValue() == 1) {
				t.Errorf("%s: %v", phase, one.GetGauge().GetValue())
			}
		}
		m.Migrations(listed) // the status is older than the journal
	}
}

// TestUndoneAgain: the duration of a step that is undone a second time begins with the second undoing.
func TestUndoneAgain(t *testing.T) {
	m := New("v0")
	m.Begin(&plan.Plan{Name: "p"}, nil)
	for i, after := range []time.Duration{0, time.Minute} {
		m.Record(engine.Record{Seq: 2*i + 1, At: start.Add(after), Event: engine.Intended, Step: "s", Undo: true})
		m.Record(engine.Record{Seq: 2*i + 2, At: start.Add(after + time.Second), Event: engine.StepUndone, Step: "s"})
	}
	for _, metric := range family(t, m, "theseus_step_duration_seconds").GetMetric() {
		if values(metric)[0] == "undone" && metric.GetHistogram().GetSampleSum() != 2 {
			t.Errorf("%v", metric)
		}
	}
}

// TestConnections: connections that send nothing are bounded, and what is beyond is answered once one of them has
// ended.
func TestConnections(t *testing.T) {
	address, stop, err := New("v0").Serve("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	var idle []net.Conn
	for range mostConnections {
		one, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer one.Close()
		idle = append(idle, one)
	}
	for _, test := range []struct {
		within   time.Duration
		answered bool
	}{{500 * time.Millisecond, false}, {10 * time.Second, true}} {
		answer, err := (&http.Client{Timeout: test.within}).Get("http://" + address + "/metrics")
		if err == nil {
			answer.Body.Close()
		}
		if (err == nil) != test.answered {
			t.Errorf("within %s: %v", test.within, err)
		}
		idle[0].Close()
		idle[1].Close()
	}
}

// TestSlowReaders: readers that do not read keep nobody from being answered.
func TestSlowReaders(t *testing.T) {
	m := New("v0")
	m.Begin(&plan.Plan{Name: "p"}, nil)
	measure(m, account(mostHistograms, counted(1)), start) // more than the buffers of a connection hold
	address, stop, err := m.Serve("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for range 4 {
		slow, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer slow.Close()
		if err := slow.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(slow, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
		if _, err := slow.Read(make([]byte, 1)); err != nil { // its answer has begun
			t.Fatal(err)
		}
	}
	answer, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Errorf("with four readers that do not read: %d", answer.StatusCode)
	}
}
