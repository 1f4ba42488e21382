package web_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/run/web"
	"github.com/theseus-cni/theseus/internal/run/web/webtest"
)

const address = "127.0.0.1:4321"

// acts are actions that remember what was asked.
type acts struct{ did []string }

func (*acts) Names() []string { return []string{"pause", "rollback"} }

func (*acts) Question(_ context.Context, action string) (web.Question, error) {
	if action == "pause" {
		return web.Question{Text: "stops", Plan: "hash"}, nil
	}
	return web.Question{Text: "undoes", Word: "calico", Plan: "hash"}, nil
}

func (a *acts) Do(_ context.Context, action, plan string) (string, error) {
	if len(a.did) > 2 {
		return "", errors.New("it is\nover")
	}
	a.did = append(a.did, action+" "+plan)
	return "asked", nil
}

// request is what a browser sends from the page itself.
func request(page *web.Server, method, path, body string) *http.Request {
	r := httptest.NewRequest(method, "http://"+address+path, strings.NewReader(body))
	_, token, _ := strings.Cut(page.URL(), "#")
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if method == http.MethodPost {
		r.Header.Set("Origin", "http://"+address)
	}
	return r
}

func answer(page *web.Server, r *http.Request) (int, string, http.Header) {
	w := httptest.NewRecorder()
	page.ServeHTTP(w, r)
	return w.Code, w.Body.String(), w.Header()
}

// TestGuards: who asks by another name, from another site, or without the token gets nothing of the cluster.
func TestGuards(t *testing.T) {
	r := webtest.New(t, 3)
	page := web.NewServer(web.NewFeed(r.Plan), address, &acts{}, nil)
	other := web.NewServer(web.NewFeed(r.Plan), address, nil, nil)
	for name, test := range map[string]struct {
		path   string
		change func(*http.Request)
		want   int
	}{
		"as it is":     {"/plan", func(*http.Request) {}, http.StatusOK},
		"by localhost": {"/plan", func(r *http.Request) { r.Host = "localhost:4321" }, http.StatusOK},
		"by a rebound name": {"/plan", func(r *http.Request) { r.Host = "evil.example:4321" },
			http.StatusMisdirectedRequest},
		"by another port": {"/", func(r *http.Request) { r.Host = "127.0.0.1:80" }, http.StatusMisdirectedRequest},
		"from another site": {"/plan", func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") },
			http.StatusForbidden},
		"from another port": {"/plan", func(r *http.Request) { r.Header.Set("Origin", "http://127.0.0.1:80") },
			http.StatusForbidden},
		"from null": {"/plan", func(r *http.Request) { r.Header.Set("Origin", "null") }, http.StatusForbidden},
		"as a foreign picture": {"/page.js", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
			http.StatusForbidden},
		"by a link elsewhere": {"/", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
			http.StatusOK},
		"without a token": {"/feed", func(r *http.Request) { r.Header.Del("Authorization") }, http.StatusUnauthorized},
		"with an old token": {"/node?name=worker-001", func(r *http.Request) {
			r.Header.Set("Authorization", request(other, "GET", "/", "").Header.Get("Authorization"))
		}, http.StatusUnauthorized},
		"page without a token": {"/", func(r *http.Request) { r.Header.Del("Authorization") }, http.StatusOK},
		"nothing there":        {"/etc/passwd", func(*http.Request) {}, http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			r := request(page, http.MethodGet, test.path, "")
			test.change(r)
			code, body, header := answer(page, r)
			if code != test.want {
				t.Errorf("%d, want %d: %.200s", code, test.want, body)
			}
			if code != http.StatusOK && strings.Contains(body, "worker-") {
				t.Errorf("it tells of the cluster: %s", body)
			}
			if policy := header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'; ") ||
				strings.Contains(policy, "unsafe") {
				t.Errorf("policy %q", policy)
			}
		})
	}
}

// TestDefaultPort: browsers leave out port 80, in Host as well as in Origin. On another port, that is another server.
func TestDefaultPort(t *testing.T) {
	feed := web.NewFeed(webtest.New(t, 3).Plan)
	for address, want := range map[string]int{"127.0.0.1:80": http.StatusOK,
		"127.0.0.1:8080": http.StatusMisdirectedRequest} {
		page := web.NewServer(feed, address, nil, nil)
		for _, host := range []string{"127.0.0.1", "localhost"} {
			r := request(page, http.MethodGet, "/plan", "")
			r.Host = host
			r.Header.Set("Origin", "http://"+host)
			if code, body, _ := answer(page, r); code != want {
				t.Errorf("%s at %s: %d %s", host, address, code, body)
			}
		}
		r := request(page, http.MethodGet, "/plan", "")
		r.Host = "evil.example"
		if code, _, _ := answer(page, r); code != http.StatusMisdirectedRequest {
			t.Errorf("another name at %s: %d", address, code)
		}
	}
}

// TestSelfContained: the files of the page name no other server, and its script makes no markup of data.
func TestSelfContained(t *testing.T) {
	r := webtest.New(t, 3)
	page := web.NewServer(web.NewFeed(r.Plan), address, nil, nil)
	for _, path := range []string{"/", "/page.js", "/page.css", "/report.css"} {
		code, body, _ := answer(page, request(page, http.MethodGet, path, ""))
		if code != http.StatusOK || len(body) < 1000 {
			t.Errorf("%s: %d, %d bytes", path, code, len(body))
		}
		for _, not := range []string{"http:", "https:", "//cdn", "innerHTML", "outerHTML", "insertAdjacentHTML",
			"eval(", "style=", "onclick="} {
			if strings.Contains(body, not) {
				t.Errorf("%s has %q", path, not)
			}
		}
	}
}

// TestDo: an action needs its word, the plan that was shown, and a page that may act.
func TestDo(t *testing.T) {
	r := webtest.New(t, 3)
	did := &acts{}
	page := web.NewServer(web.NewFeed(r.Plan), address, did, func(error) string { return "look" })
	silent := web.NewServer(web.NewFeed(r.Plan), address, nil, nil)
	for _, test := range []struct {
		page *web.Server
		body string
		want int
		says string
	}{
		{page, `{"action":"pause","plan":"hash"}`, http.StatusOK, "asked"},
		{page, `{"action":"rollback","plan":"hash","word":" calico "}`, http.StatusOK, "asked"},
		{page, `{"action":"rollback","plan":"hash"}`, http.StatusBadRequest, `type "calico"`},
		{page, `{"action":"rollback","plan":"hash","word":"flannel"}`, http.StatusBadRequest, "Nothing was changed"},
		{page, `{"action":"rollback","plan":"other","word":"calico"}`,
			http.StatusConflict, "not the one that was shown"},
		{page, `{"action":"delete","plan":"hash"}`, http.StatusForbidden, "read-only"},
		{page, `pause`, http.StatusBadRequest, "is not valid JSON"},
		{page, `{"action":"` + strings.Repeat("x", 5000) + `"}`, http.StatusBadRequest, "the request is too long"},
		{silent, `{"action":"pause","plan":"hash"}`, http.StatusForbidden, "--allow-actions"},
		{page, `{"action":"pause","plan":"hash"}`, http.StatusOK, "asked"},
		{page, `{"action":"pause","plan":"hash"}`, http.StatusConflict, "error: it is over\nhint: look"},
	} {
		code, body, _ := answer(test.page, request(test.page, http.MethodPost, "/do", test.body))
		if code != test.want || !strings.Contains(body, test.says) {
			t.Errorf("%.60s: %d %s", test.body, code, body)
		}
	}
	if got := strings.Join(did.did, ", "); got != "pause hash, rollback hash, pause hash" {
		t.Errorf("did %s", got)
	}
	bare := request(page, http.MethodPost, "/do", `{"action":"pause","plan":"hash"}`)
	bare.Header.Del("Origin")
	if code, _, _ := answer(page, bare); code != http.StatusForbidden {
		t.Errorf("without an Origin: %d", code)
	}
	if code, _, _ := answer(page, request(page, http.MethodGet, "/do", "")); code != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", code)
	}
}

// FuzzDo: whatever a browser sends, an action is done only with its word and its plan.
func FuzzDo(f *testing.F) {
	for _, body := range []string{`{"action":"rollback","plan":"hash","word":"calico"}`,
		`{"action":"pause","plan":"hash"}`, `{}`, `[`, `{"Action":"pause","PLAN":"hash"}`} {
		f.Add(body)
	}
	feed := web.NewFeed(webtest.New(f, 3).Plan)
	f.Fuzz(func(t *testing.T, body string) {
		did := &acts{}
		page := web.NewServer(feed, address, did, nil)
		code, _, _ := answer(page, request(page, http.MethodPost, "/do", body))
		var asked struct{ Action, Word, Plan string }
		err := json.NewDecoder(strings.NewReader(body)).Decode(&asked)
		confirmed := err == nil && asked.Plan == "hash" && (asked.Action == "pause" && strings.TrimSpace(
			asked.Word) == "" || asked.Action == "rollback" && strings.TrimSpace(asked.Word) == "calico")
		if done := len(did.did) > 0; done != (code == http.StatusOK) || done && !confirmed {
			t.Errorf("%q: %d, did %q", body, code, did.did)
		}
	})
}

// TestStream: a viewer gets the whole state, and then what changes, as server-sent events; and signs of life.
func TestStream(t *testing.T) {
	r := webtest.New(t, 3)
	feed := web.NewFeed(r.Plan)
	listener, err := web.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	page := web.NewServer(feed, listener.Addr().String(), nil, nil)
	server := &http.Server{Handler: page}
	go server.Serve(listener) //nolint:errcheck // ends with the test
	defer server.Close()      //nolint:errcheck
	url, token, _ := strings.Cut(page.URL(), "/#")
	ask, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/feed", nil)
	ask.Header.Set("Authorization", "Bearer "+token)
	reply, err := http.DefaultClient.Do(ask)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close() //nolint:errcheck
	lines := bufio.NewReader(reply.Body)
	next := func() string {
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if strings.TrimSpace(line) != "" {
				return line
			}
		}
	}
	var d web.Delta
	if err := json.Unmarshal([]byte(strings.TrimPrefix(next(), "data: ")), &d); err != nil ||
		!d.Full || len(d.Nodes) != 3 {
		t.Errorf("first: %v %+v", err, d)
	}
	r.Show(feed, 0, r.Begin.Add(3*time.Second))
	d = web.Delta{}
	if err := json.Unmarshal([]byte(strings.TrimPrefix(next(), "data: ")), &d); err != nil || d.Full ||
		len(d.Lines) == 0 || d.Now == nil {
		t.Errorf("then: %v %+v", err, d)
	}
	if line := next(); line != ": still here\n" {
		t.Errorf("sign of life: %q", line)
	}
}

// anyone is a gate that shows everyone the same.
type anyone struct{ view web.View }

func (*anyone) Ours(*http.Request) *web.Refused { return nil }

func (o *anyone) View(*http.Request, string) (*web.View, error) { return &o.view, nil }

// TestStreamEnds: a stream ends once the person may not look any more, and when that cannot be found out for long
// although the cluster can be read. It outlives an outage.
func TestStreamEnds(t *testing.T) {
	r := webtest.New(t, 3)
	for name, test := range map[string]struct {
		answer func(i int32) error // to check i
		read   bool                // the cluster is
		ends   bool
	}{
		"may look": {func(int32) error { return nil }, true, false},
		"not any more": {func(i int32) error {
			if i < 3 {
				return nil
			}
			return fmt.Errorf("checked: %w", &web.Refused{Code: http.StatusForbidden})
		}, true, true},
		"an outage":  {func(int32) error { return errors.New("no answer") }, false, false},
		"not proven": {func(int32) error { return errors.New("no answer") }, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			feed, checks := web.NewFeed(r.Plan), atomic.Int32{}
			page := web.Serve(&anyone{web.View{Feed: feed, Check: func(ctx context.Context) error {
				if _, bounded := ctx.Deadline(); !bounded {
					t.Error("a check may take for ever")
				}
				if test.read {
					feed.Publish(web.About{}, time.Now(), nil)
				}
				return test.answer(checks.Add(1))
			}}}, nil)
			page.CheckEvery = time.Millisecond
			page.Hurry(50*time.Millisecond, time.Second)
			server := httptest.NewServer(page)
			defer server.Close()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ask, _ := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/feed", nil)
			reply, err := http.DefaultClient.Do(ask)
			if err != nil {
				t.Fatal(err)
			}
			defer reply.Body.Close() //nolint:errcheck
			ended := make(chan error, 1)
			go func() {
				_, err := io.Copy(io.Discard, reply.Body)
				ended <- err
			}()
			if test.ends {
				if err := <-ended; err != nil {
					t.Error(err)
				}
				return
			}
			for checks.Load() < 200 {
				select {
				case err := <-ended:
					t.Fatalf("it ended: %v", err)
				case <-time.After(time.Millisecond):
				}
			}
		})
	}
}

// TestSlowBody: who begins a request and never ends it keeps no connection.
func TestSlowBody(t *testing.T) {
	page := web.Serve(&anyone{}, nil)
	page.Hurry(time.Minute, 20*time.Millisecond)
	server := httptest.NewServer(page)
	defer server.Close()
	for name, head := range map[string]string{"no body": "POST /do HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n",
		"to read": "GET /plan HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n",
		"no end":  "POST /do HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"} {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(20 * time.Second)) //nolint:errcheck
		if _, err := conn.Write([]byte(head)); err != nil {
			t.Fatal(err)
		}
		if said, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(said), "HTTP/1.1 400 ") {
			t.Errorf("%s: %v %q", name, err, said)
		}
	}
}

// TestListen: the page is for this machine alone.
func TestListen(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", ":0", "192.0.2.1:8080", "[::]:0", "example.org:80"} {
		if _, err := web.Listen(address); !errors.Is(err, web.ErrNotLoopback) {
			t.Errorf("%s: %v", address, err)
		}
	}
	if _, err := web.Listen("8080"); err == nil || errors.Is(err, web.ErrNotLoopback) {
		t.Error(err)
	}
	for _, address := range []string{"127.0.0.1:0", "localhost:0"} {
		listener, err := web.Listen(address)
		if err != nil {
			t.Fatal(err)
		}
		listener.Close() //nolint:errcheck
	}
}

// TestDetails: nodes and steps are served one by one.
func TestDetails(t *testing.T) {
	r, lost := lossy(t)
	feed := web.NewFeed(r.Plan)
	r.Show(feed, r.Show(feed, 0, lost.Add(9*time.Second)), lost.Add(10*time.Second))
	page := web.NewServer(feed, address, nil, nil)
	code, body, _ := answer(page, request(page, http.MethodGet, "/node?name=worker-002", ""))
	var node web.NodeDetail
	if err := json.Unmarshal([]byte(body), &node); err != nil || code != http.StatusOK {
		t.Fatalf("%d %v %s", code, err, body)
	}
	if node.Lost == 0 || node.Longest != 4000 || len(node.List) == 0 || len(node.Steps) == 0 || node.Reports.IsZero() {
		t.Errorf("%+v", node)
	}
	for path, want := range map[string]int{"/node?name=nobody": 404, "/step?i=0": 200, "/step?i=9999": 404,
		"/step?i=x": 404, "/step?i=-1": 404} {
		if code, body, _ := answer(page, request(page, http.MethodGet, path, "")); code != want {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
}
