package node

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/step"
)

const metrics = `# HELP apply_seconds how long it took
# TYPE apply_seconds summary
apply_seconds{quantile="0.5"} 0.02
apply_seconds{quantile="0.99"} 1.25
apply_seconds_count 12
failures 3
failures_of_others 7
never{quantile="0.99"} NaN
`

const report = `{"Router":{"Stats":{"Dropped":29,"Negative":-1,"Text":"4"}}}`

// TestServed: numbers of both forms are read, and what is not served, or not there to be read, is named.
func TestServed(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/metrics":
			w.Write([]byte(metrics)) //nolint:errcheck // the test sees it
		case "/report":
			if r.Header.Get("Accept") != "application/json" {
				http.Error(w, "text", http.StatusNotAcceptable)
				return
			}
			w.Write([]byte(report)) //nolint:errcheck // as above
		case "/moved":
			http.Redirect(w, r, "/metrics", http.StatusFound)
		case "/large":
			w.Write([]byte(strings.Repeat("x", servedMost+1))) //nolint:errcheck // as above
		default:
			w.Write([]byte("no numbers")) //nolint:errcheck // as above
		}
	}))
	defer server.Close()
	got, why := Served(t.Context(), []step.Reading{
		{URL: server.URL + "/metrics", Counters: map[string]string{"a.failures": "failures"},
			Gauges: map[string]string{"a.p99": `apply_seconds{quantile="0.99"}`, "a.never": `never{quantile="0.99"}`}},
		{URL: server.URL + "/report", JSON: true, Counters: map[string]string{"b.dropped": "Router.Stats.Dropped"}},
	})
	if len(why) > 0 || !maps.Equal(got.Counters(), map[string]int64{"a.failures": 3, "b.dropped": 29}) ||
		!maps.Equal(got.gauges, map[string]float64{"a.p99": 1.25}) {
		t.Errorf("%v, %v", got, why)
	}
	for name, c := range map[string]struct {
		reading step.Reading
		says    string
	}{
		"a counter that is not served": {step.Reading{URL: server.URL + "/metrics",
			Counters: map[string]string{"a": "fail"}}, "it serves no fail"},
		"a negative number": {step.Reading{URL: server.URL + "/report", JSON: true,
			Counters: map[string]string{"a": "Router.Stats.Negative"}}, "it serves no Router.Stats.Negative"},
		"a text": {step.Reading{URL: server.URL + "/report", JSON: true,
			Counters: map[string]string{"a": "Router.Stats.Text"}}, "it serves no Router.Stats.Text"},
		"a field of a number": {step.Reading{URL: server.URL + "/report", JSON: true,
			Counters: map[string]string{"a": "Router.Stats.Dropped.More"}}, "it serves no Router"},
		"no JSON":          {step.Reading{URL: server.URL + "/", JSON: true}, "its answer is not JSON"},
		"another answer":   {step.Reading{URL: server.URL + "/report"}, "it answers 406"},
		"a redirect":       {step.Reading{URL: server.URL + "/moved"}, "it answers 302"},
		"too much":         {step.Reading{URL: server.URL + "/large"}, "more than"},
		"another machine":  {step.Reading{URL: "http://192.0.2.1/metrics"}, "not an address of the node itself"},
		"a name":           {step.Reading{URL: "http://localhost/metrics"}, "not an address of the node itself"},
		"a file":           {step.Reading{URL: "file:///etc/passwd"}, "not an address of the node itself"},
		"with a user":      {step.Reading{URL: "http://127.0.0.1@192.0.2.1/"}, "not an address of the node itself"},
		"no program there": {step.Reading{URL: "http://127.0.0.1:1/"}, "connection refused"},
	} {
		if _, why := Served(t.Context(), []step.Reading{c.reading}); !strings.Contains(why[c.reading.URL], c.says) {
			t.Errorf("%s: %q", name, why)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, why := Served(ctx, []step.Reading{{URL: server.URL + "/metrics"}}); len(why) != 1 {
		t.Errorf("after an interrupt: %v", why)
	}
}

// FuzzServed: no answer of a network's program makes the agent panic.
func FuzzServed(f *testing.F) {
	for _, text := range []string{metrics, `{"a":{"b":1}}`, `{"a":[1]}`, "", "a", "a ", `a{quantile="`,
		"a NaN\n", "a \n"} {
		f.Add(text, "a.b")
		f.Add(text, "a")
	}
	f.Fuzz(func(t *testing.T, text, path string) {
		if _, ok := sampleOf([]byte(text))(path); ok && !strings.Contains(text, path) {
			t.Errorf("%q has a sample %q", text, path)
		}
		var document any
		if json.Unmarshal([]byte(text), &document) == nil {
			numberAt(document, path)
		}
	})
}
