package provider

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	of "github.com/open-feature/go-sdk/openfeature"
)

// serve serves a file's flags.
func serve(t *testing.T, set string) (server *httptest.Server, path string, p *Provider) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "flags.json")
	write(t, path, set)
	p = NewProvider(File{path})
	_ = p.Init(of.EvaluationContext{}) // it may be invalid, which is then what is served
	t.Cleanup(p.Shutdown)
	server = httptest.NewServer(Handler(p))
	t.Cleanup(server.Close)
	return server, path, p
}

// ask posts a body, and returns the answer with its body as JSON.
func ask(t *testing.T, url, body, tag string) (*http.Response, map[string]any) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if tag != "" {
		request.Header.Set("If-None-Match", tag)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var answer map[string]any
	if response.StatusCode != http.StatusNotModified {
		if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
			t.Fatal(err)
		}
	}
	return response, answer
}

func TestServer(t *testing.T) {
	server, path, p := serve(t, setOf(1))
	for _, c := range []struct {
		key, body string
		status    int
		want      map[string]any
	}{
		{"bpf", `{"context": {"pool": "edge"}}`, 200,
			map[string]any{"value": true, "variant": "on", "reason": "TARGETING_MATCH"}},
		{"bpf", `{"context": {}}`, 200, map[string]any{"value": false, "variant": "off", "reason": "DEFAULT"}},
		{"bpf", `{}`, 200, map[string]any{"value": false}},
		{"mode", `{}`, 200, map[string]any{"value": "nftables", "reason": "STATIC"}},
		{"off", `{}`, 200, map[string]any{"value": nil, "reason": "DISABLED"}},
		{"open", `{}`, 200, map[string]any{"value": nil, "variant": nil, "reason": "DEFAULT"}},
		{"nothing", `{}`, 404, map[string]any{"errorCode": "FLAG_NOT_FOUND", "key": "nothing"}},
		{"bpf", `{"context": 7}`, 400, map[string]any{"errorCode": "INVALID_CONTEXT"}},
		{"bpf", `[]`, 400, map[string]any{"errorCode": "INVALID_CONTEXT"}},
		{"bpf", `no`, 400, map[string]any{"errorCode": "PARSE_ERROR"}},
		{"bpf", `{"context": {"x": "` + strings.Repeat("x", maxBody) + `"}}`, 413,
			map[string]any{"errorDetails": "a request has at most 8388608 bytes"}},
	} {
		response, answer := ask(t, server.URL+evaluatePath+"/"+c.key, c.body, "")
		if response.StatusCode != c.status {
			t.Errorf("%s: %s", c.key, response.Status)
		}
		for key, want := range c.want {
			is(t, c.key+" "+key, answer[key], want)
		}
	}

	// All flags, with a tag: unchanged is 304, another context or another set is another answer.
	all := server.URL + evaluatePath
	response, answer := ask(t, all, `{"context": {"pool": "edge"}}`, "")
	tag := response.Header.Get("ETag")
	is(t, "how many", len(answer["flags"].([]any)), 9)
	response, _ = ask(t, all, `{"context": {"pool": "edge"}}`, `"other", W/`+tag)
	is(t, "unchanged", response.StatusCode, http.StatusNotModified)
	response, _ = ask(t, all, `{"context": {}}`, tag)
	is(t, "another context", response.StatusCode, http.StatusOK)
	write(t, path, setOf(2))
	eventually(t, "another set", func() bool {
		response, _ := ask(t, all, `{"context": {"pool": "edge"}}`, tag)
		return response.StatusCode == http.StatusOK
	})

	// A broken source: the last good set is served, and the header says so.
	write(t, path, invalidSet)
	eventually(t, "STALE", func() bool { return p.Status().State == of.StaleState })
	response, answer = ask(t, server.URL+evaluatePath+"/first", `{}`, "")
	is(t, "stale", []any{response.Header.Get(sourceHeader), answer["value"]}, []any{"STALE", 2.0})
	if reason := p.Status().Reason; !strings.Contains(reason,
		`flags.json:1: flags.first.defaultVariant: there is no variant "noww"`) {
		t.Errorf("the reason is %q", reason)
	}
}

// TestNotReady: without a first set nothing is answered, and the server recovers by itself.
func TestNotReady(t *testing.T) {
	server, path, p := serve(t, invalidSet)
	is(t, "state", p.Status().State, of.ErrorState)
	response, answer := ask(t, server.URL+evaluatePath+"/first", `{}`, "")
	is(t, "not ready", []any{response.StatusCode, answer["errorCode"]},
		[]any{http.StatusServiceUnavailable, "PROVIDER_NOT_READY"})
	write(t, path, setOf(1))
	eventually(t, "it answers", func() bool {
		response, _ := ask(t, server.URL+evaluatePath+"/first", `{}`, "")
		return response.StatusCode == http.StatusOK
	})
}

// TestQuiet: a server that asks for quiet is left in peace, and the last answers stand.
func TestQuiet(t *testing.T) {
	asked, busy := 0, false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if busy {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		reply(w, http.StatusOK, ofrepResult{Key: "a", Reason: "STATIC", Variant: "on", Value: json.RawMessage("true")})
	}))
	defer server.Close()
	remote, err := NewRemote(server.URL, http.Header{"Authorization": {"Bearer x"}}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	is(t, "an answer", remote.BooleanEvaluation(t.Context(), "a", false, nil).Reason, of.StaticReason)
	busy = true
	for range 5 {
		r := remote.BooleanEvaluation(t.Context(), "a", false, nil)
		is(t, "the last answer", []any{r.Value, r.Reason}, []any{true, StaleReason})
	}
	is(t, "how often it was asked", asked, 2)
	if r := remote.BooleanEvaluation(t.Context(), "b", true, nil); r.Value != true || r.Error() == nil {
		t.Errorf("a question without an answer: %+v", r)
	}
}

// TestLargeFile: 50 MB are refused without being read to the end.
func TestLargeFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flags.json")
	write(t, path, `{"flags": {}, "$comment": "`+strings.Repeat("x", 50<<20)+`"}`)
	_, err := File{path}.Load(t.Context())
	if err == nil || !strings.Contains(err.Error(), "a flag set has at most 16 MiB") {
		t.Error(err)
	}
}
