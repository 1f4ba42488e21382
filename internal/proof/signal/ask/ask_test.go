package ask

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/proof/signal"
	"github.com/theseus-cni/theseus/internal/proof/signal/promtest"
)

func signals(t *testing.T, texts ...string) []signal.Signal {
	t.Helper()
	all, err := signal.ParseAll(texts)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

const vector = `{"status":"success","data":{"resultType":"vector","result":[%s]}}`

// TestQuery: only finite numbers of a server that answers rightly are measurements; all else is no answer.
func TestQuery(t *testing.T) {
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	for name, test := range map[string]struct {
		serve func(w http.ResponseWriter, r *http.Request)
		state signal.State
		says  string
	}{
		"holds": {now(200, vector, `{"value":[NOW,"0.01"]}`), signal.Holds, "errors / requests is 0.01"},
		"old": {text(200, fmt.Sprintf(vector, `{"value":[1700000000,"0.01"]}`)), signal.Unknown,
			"it is old, or a clock is wrong"},
		"partial": {now(200,
			`{"status":"success","warnings":["store b is away"],"data":{"resultType":"vector","result":[%s]}}`,
			`{"value":[NOW,"0.01"]}`), signal.Unknown,
			"may be partial: store b is away"},
		"fails": {now(200, vector, `{"value":[NOW,"0.2"]}`), signal.Fails,
			"errors / requests is 0.2, and must be < 0.05"},
		"two series": {now(200, vector, `{"value":[NOW,"0.01"]},{"value":[NOW,"0.2"]}`), signal.Fails,
			"errors / requests is 0.2 in 1 of 2 series, and must be < 0.05"},
		"empty":  {text(200, fmt.Sprintf(vector, "")), signal.Unknown, "the query yields no data"},
		"NaN":    {now(200, vector, `{"value":[NOW,"NaN"]}`), signal.Unknown, "which is not a measurement"},
		"status": {text(500, "oops"), signal.Unknown, "HTTP status 500: it is not JSON of a Prometheus"},
		"odd": {now(503, vector, `{"value":[NOW,"0.01"]}`), signal.Unknown,
			"HTTP status 503: it is not an answer to a query"},
		"bad query": {text(400, `{"status":"error","error":"parse error"}`), signal.Unknown,
			"HTTP status 400: the query fails: parse error"},
		"JSON": {text(200, `{"status":"success","data":`), signal.Unknown, "it is not JSON of a Prometheus"},
		"page": {text(200, "<html>sign in</html>"), signal.Unknown, "it is not JSON of a Prometheus"},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		}, signal.Unknown,
			"HTTP status 302"},
		"long":  {text(200, strings.Repeat(" ", mostBody+1)), signal.Unknown, "larger than 1048576 bytes"},
		"hangs": {func(http.ResponseWriter, *http.Request) { <-stop }, signal.Unknown, "nothing came within 300ms"},
		"drips": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"status":`)
			w.(http.Flusher).Flush()
			<-stop
		}, signal.Unknown, "nothing came within 300ms"},
		"closes": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, signal.Unknown, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/prom/api/v1/query" || r.URL.Query().Get("query") != "errors / requests" ||
					r.URL.Query().Get("tenant") != "a" ||
					r.URL.Query().Get("lookback_delta") != "2m" {
					t.Errorf("asked for %s", r.URL)
				}
				test.serve(w, r)
			}))
			t.Cleanup(server.CloseClientConnections)
			asker := Asker{Patience: time.Minute} // a busy machine answers late
			if strings.HasPrefix(test.says, "nothing came") {
				asker.Patience = 300 * time.Millisecond
			}
			got := asker.All(t.Context(),
				signals(t, server.URL+"/prom/?tenant=a errors / requests < 0.05"))
			if len(got) != 1 || got[0].State != test.state || !strings.Contains(got[0].Says, test.says) ||
				len(got[0].Says) > 500 {
				t.Errorf("%+v, want %s, %q", got, test.state, test.says)
			}
		})
	}
	got := (&Asker{}).All(t.Context(), signals(t, "http://"+unserved(t)+" a < 1"))
	if got[0].State != signal.Unknown || !strings.Contains(got[0].Says, "refused") {
		t.Errorf("no server: %+v", got)
	}
}

// now is text with the time of now.
func now(status int, form, series string) func(http.ResponseWriter, *http.Request) {
	return text(status, fmt.Sprintf(form, strings.ReplaceAll(series, "NOW", fmt.Sprint(time.Now().Unix()))))
}

func text(status int, body string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

// unserved is an address where no server listens.
func unserved(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

func TestCheck(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/ok":
			w.WriteHeader(http.StatusNoContent)
		case "/moved":
			http.Redirect(w, r, "/ok", http.StatusMovedPermanently)
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(server.Close)
	stop := make(chan struct{})
	hangs := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-stop }))
	t.Cleanup(func() { close(stop); hangs.Close() })
	got := (&Asker{Patience: 3 * time.Second}).All(t.Context(),
		signals(t, server.URL+"/ok", server.URL+"/moved", server.URL+"/broken", "http://"+unserved(t),
			hangs.URL+"/?user=someone", "http://no-such-host.invalid/"))
	for i, want := range []signal.State{signal.Holds, signal.Fails, signal.Fails, signal.Fails,
		signal.Fails, signal.Fails} {
		if got[i].State != want {
			t.Errorf("%+v, want %s", got[i], want)
		}
	}
	if !strings.HasSuffix(got[2].Says, "HTTP status 503") || !strings.Contains(got[3].Says, "no answer: ") ||
		got[4].Says != hangs.URL+"/: no answer: nothing came within 3s" {
		t.Errorf("%+v", got[2:])
	}
	ended, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if got := (&Asker{}).All(ended, signals(t, hangs.URL)); got[0].State != signal.Unknown {
		t.Errorf("the run ended, and that is no failure of the signal: %+v", got)
	}
}

// TestProxy: no answer has the password of a proxy. A process reads the variables of proxies once, so each is one of
// its own.
func TestProxy(t *testing.T) {
	const inner = "THESEUS_TEST_PROXY"
	if os.Getenv(inner) != "" {
		fmt.Println((&Asker{Patience: time.Second}).All(t.Context(),
			signals(t, "http://192.0.2.1/a", "http://192.0.2.1 b < 1")))
		return
	}
	for _, address := range []string{"http://user:secret@127.0.0.1:1", "http://user:secret%zz@127.0.0.1:1",
		"ftp://user:secret@127.0.0.1:1", "socks5://user:secret@127.0.0.1:1"} {
		command := exec.Command(os.Args[0], "-test.run=^TestProxy$")
		command.Env = append(os.Environ(), inner+"=1", "HTTP_PROXY="+address)
		out, err := command.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "no answer") || strings.Contains(string(out), "secret") {
			t.Errorf("%s: %v: %s", address, err, out)
		}
	}
}

// TestCommand: the exit code decides; a command that does not end is killed with all that it started, and is no answer.
func TestCommand(t *testing.T) {
	file := filepath.Join(t.TempDir(), "left")
	all := signals(t, "command: true", "command: sh -c 'echo secret; exit 3'",
		"command: sh -c 'kill -9 $$'", "command: /no/such/program", "command: sh -c '(sleep 2; touch "+file+") & wait'",
		"command: sh -c '(sleep 2; touch "+file+") & exit 0'")
	got := (&Asker{Patience: time.Second}).All(t.Context(), all)
	for i, want := range []struct {
		state signal.State
		says  string
	}{{signal.Holds, "exit code 0"}, {signal.Fails, "exit code 3"}, {signal.Fails, "killed"},
		{signal.Unknown, "no such file"},
		{signal.Fails, "nothing came within 1s"}, {signal.Holds, "exit code 0"}} {
		if got[i].State != want.state || !strings.Contains(got[i].Says, want.says) ||
			strings.Contains(strings.TrimPrefix(got[i].Says, all[i].Name()), "secret") {
			t.Errorf("%+v, want %s, %s", got[i], want.state, want.says)
		}
	}
	time.Sleep(1500 * time.Millisecond)
	if _, err := os.Stat(file); err == nil {
		t.Error("what a killed command started ran on")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got := (&Asker{}).All(ended, all[:1]); got[0].State != signal.Unknown {
		t.Errorf("%+v", got)
	}
}

// TestHangs: a process that even SIGKILL does not end delays no caller, and is not started again.
func TestHangs(t *testing.T) {
	all := signals(t, "command: true", "http://"+unserved(t))
	a := &Asker{Patience: 100 * time.Millisecond}
	a.enter("command: true") // as if the last run had not ended
	if got := a.All(t.Context(), all); got[0].State != signal.Fails ||
		!strings.Contains(got[0].Says, "its previous run has not ended") {
		t.Errorf("%+v", got)
	}
	a.leave("command: true")
	if got := a.All(t.Context(), all); got[0].State != signal.Holds {
		t.Errorf("%+v", got)
	}
	stuck := make(chan struct{})
	defer close(stuck)
	got := asking(t, a, func(context.Context, signal.Signal) (signal.Answer, error) {
		<-stuck
		return signal.Answer{}, nil
	}, all)
	if got[0].State != signal.Fails || !strings.Contains(got[0].Says, "nothing came within 100ms") ||
		got[1].State != signal.Fails {
		t.Errorf("%+v", got)
	}
}

// asking asks with a question of its own.
func asking(t *testing.T, a *Asker, ask func(context.Context, signal.Signal) (signal.Answer, error),
	all []signal.Signal) []signal.Answer {
	t.Helper()
	a.question = ask
	defer func() { a.question = nil }()
	return a.All(t.Context(), all)
}

// TestPrometheus asks a real Prometheus, which scrapes a real target.
func TestPrometheus(t *testing.T) {
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "shop_errors_total{zone=\"a\"} 1\nshop_errors_total{zone=\"b\"} 7\n"+
			"shop_requests_total 100\nshop_odd NaN\n")
	}))
	t.Cleanup(target.Close)
	address := promtest.Start(t, strings.TrimPrefix(target.URL, "http://"))
	until := time.Now().Add(time.Minute)
	for answer(t, address+" shop_requests_total == 100").State != signal.Holds {
		if time.Now().After(until) {
			t.Fatal("nothing was scraped within a minute")
		}
		time.Sleep(200 * time.Millisecond)
	}
	for query, want := range map[string]signal.Answer{
		"sum(shop_errors_total) / scalar(shop_requests_total) < 0.1": {State: signal.Holds, Says: "is 0.08"},
		"shop_errors_total < 5":                {State: signal.Fails, Says: "is 7 in 1 of 2 series"},
		"scalar(shop_requests_total) > 100":    {State: signal.Fails, Says: "is 100, and must be > 100"},
		"sum(no_such_metric) < 1":              {State: signal.Unknown, Says: "yields no data"},
		"sum(no_such_metric) or vector(0) < 1": {State: signal.Holds, Says: "is 0"},
		"shop_odd < 1":                         {State: signal.Unknown, Says: "NaN"},
		"shop_requests_total / 0 > 1":          {State: signal.Unknown, Says: "Inf"},
		"sum(rate(shop_errors_total < 1":       {State: signal.Unknown, Says: "HTTP status 400: the query fails"},
		"shop_requests_total[1m] < 1":          {State: signal.Unknown, Says: "a scalar or a vector is needed"},
		"a < < 1":                              {State: signal.Unknown, Says: "the query fails"},
	} {
		if got := answer(t, address+" "+query); got.State != want.State || !strings.Contains(got.Says, want.Says) {
			t.Errorf("%s: %+v", query, got)
		}
	}
}

// answer is that of one signal.
func answer(t *testing.T, text string) signal.Answer {
	t.Helper()
	return (&Asker{}).All(t.Context(), signals(t, text))[0]
}
