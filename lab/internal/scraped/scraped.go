// Package scraped lets a real Prometheus, Debian's, scrape theseus or its controller during a run in the lab, and
// compares what it has with the report of the run. It has the alert rules of the documentation.
package scraped

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
)

const (
	// program is where lab/install.sh unpacks Debian's prometheus.
	program = "/usr/local/lib/theseus-lab/prometheus/usr/bin/prometheus"
	// examples has the alert rules and the dashboard; this is its path from the folders of lab/test.
	examples = "../../../docs/examples/prometheus"
)

// Prometheus is a running one, which scrapes one target once a second.
type Prometheus struct {
	// Target is the address that it scrapes, HOST:PORT.
	Target string

	t      *testing.T
	within []string // a program that runs others where the Prometheus is
	url    string
	since  time.Time
}

// Start starts a Prometheus on this machine, and chooses a target: an address for --metrics.
func Start(t *testing.T) *Prometheus { return start(t, free(t)) }

// StartWithin starts one where a program runs others, such as within the network of a lab, for a target there.
func StartWithin(t *testing.T, target string, within ...string) *Prometheus {
	return start(t, target, within...)
}

func start(t *testing.T, target string, within ...string) *Prometheus {
	t.Helper()
	rules, err := filepath.Abs(filepath.Join(examples, "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	dir, address := t.TempDir(), free(t)
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, fmt.Appendf(nil, "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"+
		"rule_files: [%q]\nscrape_configs: [{job_name: theseus, static_configs: [{targets: [%q]}]}]\n", rules, target),
		0o600); err != nil {
		t.Fatal(err)
	}
	argv := append(slices.Clone(within), program, "--config.file="+config,
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address, "--log.level=warn")
	var out bytes.Buffer
	command := exec.Command(argv[0], argv[1:]...)
	command.Stdout, command.Stderr, command.SysProcAttr = &out, &out, &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		t.Fatalf("%v (lab/install.sh unpacks prometheus)", err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL) // its data is removed with the test
		_ = command.Wait()
		if t.Failed() {
			t.Logf("prometheus: %s", out.String())
		}
	})
	p := &Prometheus{Target: target, t: t, within: within, url: "http://" + address, since: time.Now()}
	rigtest.Until(t, "Prometheus is ready", func() bool {
		_, err := p.get("/-/ready", "")
		return err == nil
	})
	return p
}

// free is an address of loopback with a port that is free.
func free(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// NextRun says that another run begins: what was scraped before does not count any more.
func (p *Prometheus) NextRun() { p.since = time.Now() }

// during is the range of a query that has all of the run.
func (p *Prometheus) during() string {
	return fmt.Sprintf("%ds", int(time.Since(p.since).Seconds())+1)
}

// get asks with curl, which any program that runs others can run.
func (p *Prometheus) get(path, query string) ([]byte, error) {
	argv := append(slices.Clone(p.within), "curl", "-sS", "--fail-with-body", "-m", "30", "--noproxy", "*", "--get",
		p.url+path)
	if query != "" {
		argv = append(argv, "--data-urlencode", "query="+query)
	}
	out, err := exec.CommandContext(p.t.Context(), argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return out, nil
}

// Sample is a sample of an answer.
type Sample struct {
	Labels map[string]string
	Value  float64
}

// Ask asks a query, whose answer is a vector.
func (p *Prometheus) Ask(query string) (all []Sample) {
	p.t.Helper()
	out, err := p.get("/api/v1/query", query)
	if err != nil {
		p.t.Fatalf("%s: %v", query, err)
	}
	var answer struct {
		Data struct {
			ResultType string
			Result     []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	if err := json.Unmarshal(out, &answer); err != nil || answer.Data.ResultType != "vector" {
		p.t.Fatalf("%s: %v: %s", query, err, out)
	}
	for _, one := range answer.Data.Result {
		value, err := strconv.ParseFloat(fmt.Sprint(one.Value[1]), 64)
		if err != nil {
			p.t.Fatalf("%s: %v", query, err)
		}
		all = append(all, Sample{one.Metric, value})
	}
	return all
}

// Settled waits until losses are counted, and no more have come for longer than a counter waits for an excuse.
func (p *Prometheus) Settled() {
	p.t.Helper()
	const lost = `sum(theseus_path_probes_total{result="lost"}`
	rigtest.Until(p.t, "losses are counted, and no more come", func() bool {
		return len(p.Ask(lost+") > 0 and "+lost+") == "+lost+" offset 15s)")) == 1
	})
}

// names are the metrics of Theseus in an expression.
var names = regexp.MustCompile(`theseus_[a-z_]+`)

// Panels demands that every query of the dashboard showed a number during the run, and that every metric of the
// dashboard and the alert rules was scraped. absent has the metrics that this run rightly has not, each with the
// reason; queries of those must be empty.
func (p *Prometheus) Panels(absent map[string]string) {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join(examples, "dashboard.json"))
	if err != nil {
		p.t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil || len(board.Panels) == 0 {
		p.t.Fatalf("the dashboard: %v", err)
	}
	asked := map[string]bool{}
	shown, empty := 0, 0
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			of := names.FindAllString(target.Expr, -1)
			for _, name := range of {
				asked[name] = true
			}
			expr := strings.NewReplacer("$__rate_interval", "1m", "$node", ".*").Replace(target.Expr)
			samples := p.Ask("max_over_time((" + expr + ")[" + p.during() + ":1s])")
			lacks := slices.ContainsFunc(of, func(name string) bool { return absent[series(name)] != "" })
			switch number := slices.ContainsFunc(samples, func(s Sample) bool { return !math.IsNaN(s.Value) }); {
			case number && lacks:
				p.t.Errorf("the panel %q shows something, and should not: %s", panel.Title, expr)
			case number:
				shown++
			case lacks:
				empty++
			default:
				p.t.Errorf("the panel %q showed nothing during the run (%d series without a number): %s",
					panel.Title, len(samples), expr)
			}
		}
	}
	for _, rule := range p.rules() {
		for _, name := range names.FindAllString(rule.Query, -1) {
			asked[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		n := len(p.Ask("last_over_time(" + name + "[" + p.during() + "])"))
		if why := absent[series(name)]; n == 0 && why == "" {
			p.t.Errorf("%s is in the dashboard or the rules, and was never scraped", name)
		} else if n > 0 && why != "" {
			p.t.Errorf("%s was scraped, but should be absent: %s", name, why)
		}
	}
	p.t.Logf("of %d queries of the dashboard, %d showed something, and %d are rightly empty", shown+empty, shown, empty)
}

// series is the name of a metric whose name may be that of a histogram's part.
func series(name string) string {
	for _, part := range []string{"_bucket", "_count", "_sum"} {
		name = strings.TrimSuffix(name, part)
	}
	return name
}

type rule struct{ Name, Query, Health, LastError string }

func (p *Prometheus) rules() []rule {
	p.t.Helper()
	out, err := p.get("/api/v1/rules", "")
	if err != nil {
		p.t.Fatal(err)
	}
	var answer struct {
		Data struct{ Groups []struct{ Rules []rule } }
	}
	if err := json.Unmarshal(out, &answer); err != nil || len(answer.Data.Groups) != 1 ||
		len(answer.Data.Groups[0].Rules) == 0 {
		p.t.Fatalf("the rules: %v: %s", err, out)
	}
	return answer.Data.Groups[0].Rules
}

// Alerts demands that every alert rule was evaluated, and which alerts were raised during the run: all of raised, and
// no others but those of perhaps.
func (p *Prometheus) Alerts(raised []string, perhaps ...string) {
	p.t.Helper()
	fired := map[string]bool{}
	for _, one := range p.Ask(`max_over_time(ALERTS{alertstate="firing"}[` + p.during() + `])`) {
		fired[one.Labels["alertname"]] = true
	}
	rules := p.rules()
	for _, rule := range rules {
		if rule.Health != "ok" {
			p.t.Errorf("the rule of %s is %s: %s", rule.Name, rule.Health, rule.LastError)
		}
		switch wanted := slices.Contains(raised, rule.Name); {
		case wanted && !fired[rule.Name]:
			p.t.Errorf("the alert %s was not raised", rule.Name)
		case !wanted && fired[rule.Name] && !slices.Contains(perhaps, rule.Name):
			p.t.Errorf("the alert %s was raised", rule.Name)
		}
	}
	p.t.Logf("%d alert rules were evaluated; raised: %s", len(rules), slices.Sorted(maps.Keys(fired)))
}

// report is what is compared of a report.
type report struct {
	Totals  struct{ Sent, Lost, DeniedSent, Leaked int64 }
	Classes []struct {
		Name       string
		Denied     bool
		Sent, Lost int64
	}
	Nodes []struct {
		Name string
		Sent int64
	}
	Steps []step
}

type step struct {
	State, Failure string
	Begin, End     time.Time
}

// Agrees compares what was scraped with the report of the run: every node has series; the probes of each class are
// those of the report but for what was sent after the last scrape; the losses are exactly those of the report, or,
// where they may not have settled, not more; the durations of steps are those of the report. The number of series is
// bounded by classes and nodes, and no label names a path.
func (p *Prometheus) Agrees(file string, settled bool) {
	p.t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		p.t.Fatal(err)
	}
	var want report
	if err := json.Unmarshal(text, &want); err != nil || want.Totals.Sent == 0 {
		p.t.Fatalf("%s: %v, %+v", file, err, want.Totals)
	}
	p.probes(want, settled)
	p.steps(want)
	p.bounded(len(want.Nodes))
}

func (p *Prometheus) probes(want report, settled bool) {
	p.t.Helper()
	type counts struct{ sent, lost float64 }
	classes, nodes, all := map[string]counts{}, map[string]float64{}, counts{}
	for _, s := range p.Ask("last_over_time(theseus_path_probes_total[" + p.during() + "])") {
		c := classes[s.Labels["class"]]
		c.sent += s.Value
		if result := s.Labels["result"]; result == "lost" || result == "denied_answered" {
			c.lost += s.Value
		}
		classes[s.Labels["class"]] = c
		nodes[s.Labels["node"]] += s.Value
	}
	reported := map[string]counts{}
	for _, class := range want.Classes {
		name, lost := class.Name, class.Lost
		if class.Denied {
			name, lost = "denied", want.Totals.Leaked
		}
		reported[name] = counts{reported[name].sent + float64(class.Sent), reported[name].lost + float64(lost)}
	}
	for _, name := range slices.Sorted(maps.Keys(reported)) {
		got, is := classes[name], reported[name]
		p.t.Logf("%s: %.0f probes were scraped of %.0f in the report, %.0f losses of %.0f", name, got.sent, is.sent,
			got.lost, is.lost)
		if got.sent > is.sent || got.sent < is.sent*0.9 || got.lost > is.lost || settled && got.lost != is.lost {
			p.t.Errorf("%s: scraped %+v, reported %+v", name, got, is)
		}
		all = counts{all.sent + got.sent, all.lost + got.lost}
	}
	for name := range classes {
		if _, known := reported[name]; !known {
			p.t.Errorf("the class %s is not in the report", name)
		}
	}
	for _, node := range want.Nodes {
		if node.Sent > 0 && nodes[node.Name] == 0 {
			p.t.Errorf("node %s has no probes", node.Name)
		}
	}
	if len(nodes) != len(want.Nodes) {
		p.t.Errorf("%d nodes were scraped, and the report has %d", len(nodes), len(want.Nodes))
	}
	p.t.Logf("in all %.0f probes and %.0f losses were scraped", all.sent, all.lost)
}

// steps compares the durations of the steps that were done at the last scrape.
func (p *Prometheus) steps(want report) {
	p.t.Helper()
	var durations []float64
	slices.SortFunc(want.Steps, func(a, b step) int { return a.End.Compare(b.End) })
	for _, step := range want.Steps {
		if step.State == "done" || step.State == "undone" && step.Failure == "" { // it was done before
			durations = append(durations, step.End.Sub(step.Begin).Seconds())
		}
	}
	value := func(part string) float64 {
		samples := p.Ask("last_over_time(theseus_step_duration_seconds_" + part + `{result="done"}[` + p.during() + "])")
		if len(samples) != 1 {
			p.t.Fatalf("%d series of the durations of steps", len(samples))
		}
		return samples[0].Value
	}
	done, sum, expected := int(value("count")), value("sum"), 0.0
	p.t.Logf("%d of %d steps were scraped, which took %.1f s", done, len(durations), sum)
	if done > len(durations) || done < len(durations)-2 || done == 0 { // the last ones end with the command
		p.t.Errorf("%d steps were scraped, and the report has %d", done, len(durations))
		return
	}
	for _, duration := range durations[:done] {
		expected += duration
	}
	if math.Abs(expected-sum) > 0.01*float64(done) {
		p.t.Errorf("the steps took %.3f s by what was scraped, and %.3f s by the report", sum, expected)
	}
}

// bounded demands that a scrape had no more series of Theseus than classes and nodes account for, and no path in a
// label.
func (p *Prometheus) bounded(nodes int) {
	p.t.Helper()
	const perNode, rest = 40, 400 // of a class: 4 results, 13 of gaps, 17 of round trips; and what no node has
	all := p.Ask(`last_over_time({__name__=~"theseus_.+"}[` + p.during() + "])")
	classes := map[string]bool{}
	for _, s := range all {
		if class := s.Labels["class"]; class != "" {
			classes[class] = true
		}
		for name, value := range s.Labels {
			if strings.ContainsAny(value, ">") || name != "instance" && strings.Contains(value, "/") {
				p.t.Errorf("a label with a path: %v", s.Labels)
			}
		}
	}
	most := perNode*nodes*len(classes) + rest
	p.t.Logf("%d series of %d classes and %d nodes, at most %d", len(all), len(classes), nodes, most)
	if len(all) > most {
		p.t.Errorf("%d series, more than %d", len(all), most)
	}
}
