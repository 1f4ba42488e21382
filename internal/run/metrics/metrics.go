package metrics

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// Metrics are the metrics of one process. A nil *Metrics counts nothing. It is safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	measured *measured

	build, migrations, degraded      *prometheus.GaugeVec
	active, steps, done              prometheus.Gauge
	stepSeconds, gateSeconds         *prometheus.HistogramVec
	actions, tasks, records, journal *prometheus.CounterVec
	journalSeconds                   prometheus.Histogram
	requests                         *prometheus.CounterVec
	requestSeconds                   *prometheus.HistogramVec

	lock    sync.Mutex
	state   engine.State
	planned map[string]*step.Action // by ID, inverses included
	began   map[string]time.Time    // steps, and "undo " + step
	asked   time.Time               // the last question of a gate
	name    string                  // of the migration that runs, or ran last
	runs    bool
	phases  map[string]string // of migrations, by name
	reasons map[string]string // of those whose condition Degraded is true, by name
}

// Bounds of histograms, in seconds.
var (
	stepBounds    = []float64{1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600}
	requestBounds = []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}
)

// phases are those of migrations. One that no process has run yet has the phase "new".
var phases = []engine.Phase{engine.PhaseNew, engine.PhaseRunning, engine.PhaseRollingBack,
	engine.PhasePaused, engine.PhaseNeedsPerson, engine.PhaseDone, engine.PhaseRolledBack}

// New makes the metrics of a program of this version.
func New(version string) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	histogram := func(name, help string, bounds []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: bounds}, labels)
	}
	m := &Metrics{
		registry: prometheus.NewRegistry(), measured: newMeasured(),
		build: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "theseus_build_info",
			Help: "1, with the version of the program."}, []string{"version"}),
		migrations: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "theseus_migrations",
			Help: "Number of migrations by phase; of a command line, its own one."}, []string{"phase"}),
		degraded: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "theseus_migrations_degraded",
			Help: "Number of migrations whose condition Degraded is true, by its reason."}, []string{"reason"}),
		active: gauge("theseus_run_active", "1 while this process runs a plan, else 0."),
		steps:  gauge("theseus_run_steps", "Number of steps of the plan that this process runs, or ran last."),
		done:   gauge("theseus_run_steps_done", "Number of steps of that plan that are done and not undone."),
		stepSeconds: histogram("theseus_step_duration_seconds",
			"Duration of steps with their gates, from the records of the journal; result is done or undone.",
			stepBounds, "result"),
		gateSeconds: histogram("theseus_gate_duration_seconds",
			"Duration of gates, from the question to the verdict; result is passed or failed.", stepBounds, "result"),
		actions: counter("theseus_actions_total", "Number of actions with an outcome in the journal, by operation "+
			"and result (done, already, failed).", "op", "result"),
		tasks: counter("theseus_tasks_total", "Number of actions that are tasks of agents on nodes, by verb and "+
			"result (done, already, failed).", "verb", "result"),
		records: counter("theseus_journal_records_total",
			"Number of records that this process wrote to the journal, by event.", "event"),
		journal: counter("theseus_journal_writes_total",
			"Number of writes to the journal; result is ok or error. A write has one record or a few.", "result"),
		journalSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "theseus_journal_write_duration_seconds",
			Help: "Duration of writes to the journal.", Buckets: requestBounds}),
		requests: counter("theseus_api_requests_total",
			"Number of answers of the API server, by HTTP status code and method.", "code", "method"),
		requestSeconds: histogram("theseus_api_request_duration_seconds",
			"Time until the API server's answer begins, by HTTP method.", requestBounds, "method"),
		planned: map[string]*step.Action{}, began: map[string]time.Time{}, phases: map[string]string{},
		reasons: map[string]string{},
	}
	m.registry.MustRegister(m.measured, m.build, m.migrations, m.degraded, m.active, m.steps, m.done, m.stepSeconds,
		m.gateSeconds, m.actions, m.tasks, m.records, m.journal, m.journalSeconds, m.requests,
		m.requestSeconds, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.build.WithLabelValues(version).Set(1)
	for _, result := range []string{"done", "undone"} {
		m.stepSeconds.WithLabelValues(result)
	}
	for _, result := range []string{"passed", "failed"} {
		m.gateSeconds.WithLabelValues(result)
	}
	for _, result := range []string{"ok", "error"} {
		m.journal.WithLabelValues(result)
	}
	return m
}

// Gatherer has all metrics.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// Begin begins with a run: the results of probes are those of this run alone, and past are the records of earlier
// processes. The returned function says that the run has ended in this process.
func (m *Metrics) Begin(p *plan.Plan, past []engine.Record) (end func()) {
	if m == nil {
		return func() {}
	}
	m.measured.begin(p.Name)
	m.lock.Lock()
	defer m.lock.Unlock()
	clear(m.planned)
	clear(m.began)
	m.asked, m.name, m.state = time.Time{}, p.Name, engine.State{Phase: engine.PhaseNew}
	for _, st := range p.Steps {
		for _, list := range [][]step.Action{st.Actions, st.Undo} {
			for i := range list {
				m.planned[list[i].ID] = &list[i]
			}
		}
	}
	for _, r := range past {
		m.learn(r)
	}
	m.active.Set(1)
	m.steps.Set(float64(len(p.Steps)))
	m.runs = true
	delete(m.reasons, m.name) // it is of the time before
	m.show()
	return func() {
		m.lock.Lock()
		m.runs = false
		m.lock.Unlock()
		m.measured.end()
		m.active.Set(0)
	}
}

// learn adds a record to what is known of the run. The caller has the lock.
func (m *Metrics) learn(r engine.Record) {
	_ = m.state.Add(r) // the engine reports a journal that cannot be replayed
	switch {
	case r.Event == engine.StepBegan:
		m.began[r.Step] = r.At
	case r.Event == engine.Intended && r.Undo:
		if _, known := m.began["undo "+r.Step]; !known {
			m.began["undo "+r.Step] = r.At
		}
	case r.Event == engine.GateAsked:
		m.asked = r.At
	}
	if r.Inverse != nil {
		m.planned[r.Inverse.ID] = r.Inverse
	}
}

// show sets the gauges of the run. The caller has the lock.
func (m *Metrics) show() {
	m.done.Set(float64(m.state.DoneSteps()))
	m.phases[m.name] = string(m.state.Phase)
	m.count()
}

// count sets the number of migrations by phase, and by the reason why they are degraded. The caller has the lock.
func (m *Metrics) count() {
	counts := map[engine.Phase]int{}
	for _, phase := range m.phases {
		counts[engine.Phase(phase)]++
	}
	for _, phase := range phases {
		m.migrations.WithLabelValues(string(phase)).Set(float64(counts[phase]))
	}
	m.degraded.Reset()
	for _, reason := range m.reasons {
		m.degraded.WithLabelValues(reason).Inc()
	}
}

// Record counts a record that this process has written.
func (m *Metrics) Record(r engine.Record) {
	if m == nil {
		return
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	m.learn(r)
	m.records.WithLabelValues(string(r.Event)).Inc()
	switch r.Event {
	case engine.StepDone:
		since(m.stepSeconds, "done", m.began[r.Step], r.At)
	case engine.StepUndone:
		since(m.stepSeconds, "undone", m.began["undo "+r.Step], r.At)
		delete(m.began, "undo "+r.Step) // it may be done, and undone, again
	case engine.GateAnswer:
		result := "failed"
		if r.Verdict != nil && r.Verdict.Pass {
			result = "passed"
		}
		since(m.gateSeconds, result, m.asked, r.At)
	case engine.Acted:
		if action := m.planned[r.Action]; action != nil {
			m.actions.WithLabelValues(string(action.Op()), r.Result).Inc()
			if do, is := action.Do.(step.Node); is {
				m.tasks.WithLabelValues(do.Verb, r.Result).Inc()
			}
		}
	}
	m.show()
}

// since observes a duration whose begin is known.
func since(of *prometheus.HistogramVec, result string, begin, end time.Time) {
	if !begin.IsZero() {
		of.WithLabelValues(result).Observe(max(0, end.Sub(begin).Seconds()))
	}
}

// Measured takes the results of all paths so far, and the paths that are planned now, at a time of this machine's
// clock.
func (m *Metrics) Measured(account loss.Account, planned []v1alpha1.Path, now time.Time) {
	if m != nil {
		m.measured.add(account, planned, now)
	}
}

// Migrations takes all migrations of a cluster.
func (m *Metrics) Migrations(all []v1alpha1.Migration) {
	if m == nil {
		return
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	clear(m.phases)
	clear(m.reasons)
	for i := range all {
		phase := all[i].Status.Phase
		if phase == "" {
			phase = string(engine.PhaseNew)
		}
		name := all[i].Name
		m.phases[name] = phase
		if m.runs && name == m.name { // the status is written a little later
			m.phases[name] = string(m.state.Phase)
			continue
		}
		for _, condition := range all[i].Status.Conditions {
			if condition.Type == v1alpha1.ConditionDegraded && condition.Status == "True" {
				m.reasons[name] = condition.Reason
			}
		}
	}
	m.count()
}

// Transport counts the requests of a client.
func (m *Metrics) Transport(next http.RoundTripper) http.RoundTripper {
	return promhttp.InstrumentRoundTripperDuration(m.requestSeconds,
		promhttp.InstrumentRoundTripperCounter(m.requests, next))
}

// Journal counts the writes to a journal.
func (m *Metrics) Journal(next engine.Journal) engine.Journal {
	if m == nil {
		return next
	}
	return journal{next, m}
}

type journal struct {
	engine.Journal
	m *Metrics
}

// Append implements engine.Journal.
func (j journal) Append(ctx context.Context, records ...engine.Record) error {
	began := time.Now()
	err := j.Journal.Append(ctx, records...)
	j.m.journalSeconds.Observe(time.Since(began).Seconds())
	result := "ok"
	if err != nil {
		result = "error"
	}
	j.m.journal.WithLabelValues(result).Inc()
	return err
}
