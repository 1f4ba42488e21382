package metrics

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/theseus-cni/theseus/internal/proof/signal/promtest"
)

const examples = "../../../docs/examples/prometheus"

func run(t *testing.T, dir string, in io.Reader, program string, args ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, args...)
	command.Dir, command.Stdin = dir, in
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", strings.Join(command.Args, " "), err, out)
	}
}

// TestRules: the alert rules are valid, and each fires when it should and not otherwise.
func TestRules(t *testing.T) {
	promtool := promtest.Program(t, "promtool")
	run(t, examples, nil, promtool, "check", "rules", "--lint-fatal", "rules.yaml")
	run(t, examples, nil, promtool, "test", "rules", "rules_test.yaml")
	text, err := os.ReadFile(filepath.Join(examples, "rules_test.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range rules(t) {
		if strings.Count(string(text), "alertname: "+rule.Alert) < 2 {
			t.Errorf("rules_test.yaml has not one case in which %s fires and one in which it does not", rule.Alert)
		}
	}
}

// TestExposition: promtool accepts what a scrape gets.
func TestExposition(t *testing.T) {
	recorder := httptest.NewRecorder()
	full(t).Handler().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	run(t, ".", bytes.NewReader(recorder.Body.Bytes()), promtest.Program(t, "promtool"), "check", "metrics")
}

// TestPrometheus: a real Prometheus scrapes the real handler. It knows every metric of the rules and the dashboard,
// evaluates every rule, and every panel shows something.
func TestPrometheus(t *testing.T) {
	server := httptest.NewServer(full(t).Handler())
	defer server.Close()
	api := scraping(t, strings.TrimPrefix(server.URL, "http://"))
	var all []string
	for _, rule := range rules(t) {
		all = append(all, rule.Expr)
		if _, err := query(t, api, rule.Expr); err != nil {
			t.Errorf("%s: %v", rule.Alert, err)
		}
	}
	until := time.Now().Add(time.Minute)
	for _, one := range panels(t) {
		all = append(all, one.expr)
		expr := strings.NewReplacer("$__rate_interval", "1m", "$node", ".*").Replace(one.expr)
		for {
			n, err := query(t, api, expr)
			if err == nil && n > 0 {
				break
			}
			if err != nil || time.Now().After(until) { // a rate needs two scrapes
				t.Errorf("the panel %q shows %d series, %v: %s", one.title, n, err, expr)
				break
			}
			time.Sleep(200 * time.Millisecond)
		}
	}
	names := map[string]bool{}
	for _, expr := range all {
		for _, name := range regexp.MustCompile(`theseus_[a-z_]+`).FindAllString(expr, -1) {
			names[name] = true
		}
	}
	for name := range names {
		if n, err := query(t, api, name); err != nil || n == 0 {
			t.Errorf("there is no metric %s: %v", name, err)
		}
	}
	families, err := full(t).Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if name := family.GetName(); strings.HasPrefix(name, "theseus_") && !strings.HasSuffix(name, "_info") &&
			!strings.Contains(strings.Join(all, " "), name) {
			t.Errorf("neither the rules nor the dashboard use %s", name)
		}
	}
}

type rule struct{ Alert, Expr string }

func rules(t *testing.T) []rule {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(examples, "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Groups []struct{ Rules []rule } }
	if err := yaml.Unmarshal(text, &file); err != nil || len(file.Groups) != 1 || len(file.Groups[0].Rules) == 0 {
		t.Fatalf("rules.yaml: %v, %+v", err, file)
	}
	return file.Groups[0].Rules
}

type panel struct{ title, expr string }

func panels(t *testing.T) (all []panel) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(examples, "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil || len(board.Panels) == 0 {
		t.Fatalf("dashboard.json: %v", err)
	}
	for _, one := range board.Panels {
		for _, target := range one.Targets {
			all = append(all, panel{one.Title, target.Expr})
		}
	}
	return all
}

// scraping starts a Prometheus that scrapes a target once a second, and returns the URL of its API once it has scraped
// twice.
func scraping(t *testing.T, target string) string {
	t.Helper()
	api := promtest.Start(t, target, filepath.Join(examples, "rules.yaml")) + "/api/v1/query"
	for until := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		if n, err := query(t, api, "count_over_time(theseus_build_info[1m]) >= 2"); err == nil && n == 1 {
			return api
		} else if time.Now().After(until) {
			t.Fatalf("Prometheus has not scraped twice within a minute: %v", err)
		}
	}
}

// query is how many series a query has.
func query(t *testing.T, api, expr string) (series int, err error) {
	t.Helper()
	answer, err := http.Get(api + "?" + url.Values{"query": {expr}}.Encode())
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	var body struct {
		Error string
		Data  struct{ Result []json.RawMessage }
	}
	if err := json.NewDecoder(answer.Body).Decode(&body); err != nil {
		return 0, err
	}
	if answer.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s", body.Error)
	}
	return len(body.Data.Result), nil
}
