// Package web holds the live page to what it promises, in a real browser: Debian's chromium, which lab/install.sh
// unpacks. The feed and the handler are those of theseus web; the run is replayed second by second.
package web

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/theseus-cni/theseus/internal/run/web"
	"github.com/theseus-cni/theseus/internal/run/web/webtest"
)

// root is where lab/install.sh unpacks chromium and the libraries that this machine may lack.
const root = "/usr/local/lib/theseus-lab/chromium"

var screenshots = flag.String("screenshots", "", "folder for pictures of the page")

// within is how long the page may take for anything on a busy machine.
const within = 60 * time.Second

// browser starts chromium with a tab of its own. Errors of the page's scripts, and what its policy refuses, fail the
// test.
func browser(t *testing.T) context.Context {
	t.Helper()
	if _, err := os.Stat(root); err != nil {
		t.Fatalf("no chromium: %v (lab/install.sh unpacks it)", err)
	}
	fonts := filepath.Join(t.TempDir(), "fonts.conf")
	if err := os.WriteFile(fonts, []byte("<fontconfig><dir>"+root+"/usr/share/fonts</dir><cachedir>"+t.TempDir()+
		"</cachedir><match target=\"pattern\"><edit name=\"family\" mode=\"append_last\"><string>Liberation "+
		"Sans</string></edit></match></fontconfig>"), 0o600); err != nil {
		t.Fatal(err)
	}
	lib := filepath.Join(root, "usr/lib/x86_64-linux-gnu")
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(filepath.Join(root, "usr/lib/chromium/chromium")), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.UserDataDir(t.TempDir()), chromedp.WindowSize(1280, 900), chromedp.WSURLReadTimeout(within),
		chromedp.Env("LD_LIBRARY_PATH="+lib+":"+filepath.Join(lib, "pulseaudio"), "FONTCONFIG_FILE="+fonts))
	allocated, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(allocated)
	t.Cleanup(cancel)
	// the browser lives as long as this call's context
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank")); err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			t.Errorf("the page's script failed: %s",
				(&chromedp.ExceptionError{ExceptionDetails: e.ExceptionDetails}).Error())
		case *cdplog.EventEntryAdded:
			if e.Entry.Source == cdplog.EntrySourceSecurity ||
				strings.Contains(e.Entry.Text, "Content Security Policy") {
				t.Errorf("the browser: %s", e.Entry.Text)
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	get(t, ctx, func(ctx context.Context, tab *chromedp.Target) (cdp.Empty, error) {
		return cdp.Call(ctx, tab, cdplog.Enable, cdp.Empty{})
	})
	return ctx
}

func get[T any](t *testing.T, ctx context.Context, action chromedp.Action[T]) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	value, err := chromedp.Run(ctx, action)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func do(t *testing.T, ctx context.Context, action chromedp.Action[chromedp.Void]) {
	t.Helper()
	get(t, ctx, action)
}

// until waits until an expression is true in the page.
func until(t *testing.T, ctx context.Context, expression string) {
	t.Helper()
	begun := time.Now()
	for ok := false; !ok; time.Sleep(50 * time.Millisecond) {
		ok = get(t, ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		if !ok && time.Since(begun) > within {
			t.Fatalf("%s does not become true:\n%.3000s", expression,
				get(t, ctx, chromedp.Evaluate[string]("document.body.innerText")))
		}
	}
}

func has(id, text string) string {
	quoted, _ := json.Marshal(text)
	return fmt.Sprintf("document.getElementById(%q).textContent.includes(%s)", id, quoted)
}

// picture writes a screenshot of the whole page, if pictures are wanted.
func picture(t *testing.T, ctx context.Context, name string) {
	if *screenshots == "" {
		return
	}
	for _, scheme := range []string{"light", "dark"} {
		get(t, ctx, func(ctx context.Context, tab *chromedp.Target) (cdp.Empty, error) {
			media := emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}
			return cdp.Call(ctx, tab, emulation.SetEmulatedMedia, media)
		})
		time.Sleep(400 * time.Millisecond) // until it is drawn
		data := get(t, ctx, chromedp.FullScreenshot(100))
		if err := os.WriteFile(filepath.Join(*screenshots, name+"-"+scheme+".png"), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// page is the page of a run, whose time the test sets.
type page struct {
	*web.Server
	run    *webtest.Run
	feed   *web.Feed
	did    *acts
	server *http.Server
	at     string
	shown  int
}

// acts are actions that remember what was asked.
type acts struct {
	lock sync.Mutex
	did  []string
}

func (*acts) Names() []string { return []string{"pause", "resume", "rollback"} }

func (*acts) Question(_ context.Context, action string) (web.Question, error) {
	if action == "pause" {
		return web.Question{Text: "The run stops after its current action. All pods stay connected.", Plan: "hash"}, nil
	}
	return web.Question{Text: "Undoes every step that was done, newest first.\nIt deletes:\n  <b>nothing</b>",
		Word: "calico", Plan: "hash"}, nil
}

func (a *acts) Do(_ context.Context, action, _ string) (string, error) {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.did = append(a.did, action)
	return "asked ada@bastion-1 to " + action, nil
}

func (a *acts) String() string {
	a.lock.Lock()
	defer a.lock.Unlock()
	return strings.Join(a.did, ", ")
}

func serve(t *testing.T, nodes int) *page {
	t.Helper()
	r := webtest.New(t, nodes)
	listener, err := web.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &page{run: r, feed: web.NewFeed(r.Plan), did: &acts{}, at: listener.Addr().String()}
	p.Server = web.NewServer(p.feed, p.at, p.did, nil)
	p.Live = r
	p.listen(t, listener)
	t.Cleanup(func() { p.server.Close() }) //nolint:errcheck
	return p
}

func (p *page) listen(t *testing.T, listener net.Listener) {
	if listener == nil {
		var err error
		if listener, err = web.Listen(p.at); err != nil {
			t.Fatal(err)
		}
	}
	p.server = &http.Server{Handler: p}
	go p.server.Serve(listener) //nolint:errcheck // ends with the test
}

// play shows the run from one time to another, a second of it every twentieth of a second.
func (p *page) play(from, to time.Time) {
	for at := from; !at.After(to); at = at.Add(time.Second) {
		p.shown = p.run.Show(p.feed, p.shown, at)
		time.Sleep(50 * time.Millisecond)
	}
}

func (p *page) after(seconds int) time.Time {
	return p.run.Begin.Add(time.Duration(seconds) * time.Second)
}

// TestFollowed: a run is followed from before its start to its end, and a loss is seen when it happens.
func TestFollowed(t *testing.T) {
	ctx, p := browser(t), serve(t, 12)
	p.run.Losses = []webtest.Loss{{Node: "worker-003", Class: "pod-pod", From: p.after(40), Lasts: 3 * time.Second},
		{Node: "worker-003", Class: "pod-service", From: p.after(41), Lasts: 400 * time.Millisecond}}
	do(t, ctx, chromedp.Navigate(p.URL()))
	until(t, ctx, has("now", "Nothing is measured yet"))
	until(t, ctx, "location.hash === ''")
	picture(t, ctx, "1-before")
	p.play(p.run.Begin, p.after(36))
	until(t, ctx, has("now", "Nothing is being lost"))
	until(t, ctx, "document.querySelectorAll('#waves button').length === 12 && "+
		"document.querySelectorAll('#waves .done').length > 0")
	until(t, ctx, "document.querySelectorAll('#classes tbody tr').length > 5 && "+
		"document.querySelectorAll('#lines li').length > 20")
	picture(t, ctx, "2-running")
	p.play(p.after(37), p.after(42))
	until(t, ctx, has("now", "Probes are being lost now: pod-pod, pod-service"))
	until(t, ctx, "document.getElementById('verdict').className === 'verdict bad' && "+
		"document.querySelector('#now[aria-live=polite]')")
	picture(t, ctx, "3-losing")
	p.play(p.after(43), p.after(60))
	until(t, ctx, has("now", "Nothing is being lost now"))
	until(t, ctx, has("remarks", "The last loss ended at 02:10:43 UTC."))
	last := p.run.Records[len(p.run.Records)-1].At
	p.play(p.after(61), last.Add(20*time.Second))
	until(t, ctx, has("stand", "done"))
	until(t, ctx, has("now", "The run has ended; there were losses"))
	until(t, ctx, "document.querySelectorAll('#waves .done').length === 12")
	picture(t, ctx, "4-done")
}

// TestCut: the page says since when it is stale, whether its server or the API server is away, and comes back by
// itself.
func TestCut(t *testing.T) {
	ctx, p := browser(t), serve(t, 5)
	do(t, ctx, chromedp.Navigate(p.URL()))
	p.play(p.run.Begin, p.after(20))
	until(t, ctx, has("now", "Nothing is being lost"))
	until(t, ctx, "document.querySelector('#figures .ok')")
	p.feed.Stale("connection refused", p.after(21))
	until(t, ctx, has("stale", "Stale since 02:10:20 UTC: the API server cannot be read: connection refused"))
	until(t, ctx, has("now", "Not known at the moment"))
	until(t, ctx, "!document.querySelector('#figures .ok')") // what was good may not be any more
	picture(t, ctx, "5-stale")
	p.play(p.after(22), p.after(23))
	until(t, ctx, "document.getElementById('stale').hidden && "+has("now", "Nothing is being lost"))
	if err := p.server.Close(); err != nil {
		t.Fatal(err)
	}
	until(t, ctx, "!document.getElementById('stale').hidden && "+has("stale", "theseus web"))
	p.play(p.after(24), p.after(30))
	p.listen(t, nil)
	until(t, ctx, "document.getElementById('stale').hidden && "+has("now", "Nothing is being lost"))
	until(t, ctx, fmt.Sprintf("document.querySelectorAll('#lines li').length > 10 && "+
		"document.querySelectorAll('#waves button').length === %d", 5))
	// A reload needs no token in the address: the tab has it.
	do(t, ctx, chromedp.Reload())
	until(t, ctx, has("now", "Nothing is being lost"))
	// Another tab without it gets nothing.
	other, cancel := chromedp.NewContext(ctx)
	defer cancel()
	if err := chromedp.Do(other, chromedp.Navigate("about:blank")); err != nil {
		t.Fatal(err)
	}
	do(t, other, chromedp.Navigate("http://"+p.at+"/"))
	until(t, other, has("stale", "the token is missing or wrong"))
}

// TestBroken: after an answer that the page cannot read, it takes a new connection, and ends the old one.
func TestBroken(t *testing.T) {
	ctx, p := browser(t), serve(t, 5)
	var once sync.Once
	gone := make(chan struct{})
	p.server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		broken := false
		if r.URL.Path == "/feed" {
			once.Do(func() { broken = true })
		}
		if !broken {
			p.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\n\n")
		http.NewResponseController(w).Flush() //nolint:errcheck // the test waits for what follows
		<-r.Context().Done()
		close(gone)
	})
	do(t, ctx, chromedp.Navigate(p.URL()))
	until(t, ctx, has("now", "Nothing is measured yet"))
	select {
	case <-gone:
	case <-time.After(within):
		t.Error("the page keeps the connection that it does not read")
	}
}

// TestKeyboard: everything can be done without a mouse.
func TestKeyboard(t *testing.T) {
	ctx, p := browser(t), serve(t, 5)
	do(t, ctx, chromedp.Navigate(p.URL()))
	p.play(p.run.Begin, p.after(30))
	until(t, ctx, "document.querySelectorAll('#waves button').length === 5 && document.querySelectorAll('#buttons "+
		"button').length === 3")
	press := func(keys string) { t.Helper(); do(t, ctx, chromedp.KeyEvent(keys)) }
	focus := func(want string) {
		t.Helper()
		until(t, ctx, fmt.Sprintf("(document.activeElement.getAttribute('aria-label') || "+
			"document.activeElement.textContent || document.activeElement.id).startsWith(%q)", want))
	}
	press(kb.Tab)
	focus("Skip to the losses")
	press(kb.Tab)
	focus("Pause")
	press(kb.Enter)
	until(t, ctx, "document.getElementById('dialog').open && "+has("dialoghead", "Pause flannel-to-calico-3f9c2a?"))
	press(kb.Enter)
	until(t, ctx, has("said", "asked ada@bastion-1 to pause"))
	focus("Pause")
	press(kb.Tab)
	press(kb.Tab)
	focus("Roll back")
	press(kb.Enter)
	until(t, ctx, "document.activeElement.id === 'word' && document.querySelector('#detail button').disabled")
	until(t, ctx, has("detail", "<b>nothing</b>")) // as text
	press("calic")
	until(t, ctx, "document.querySelector('#detail button').disabled")
	press(kb.Enter)
	press("o")
	until(t, ctx, "!document.querySelector('#detail button').disabled")
	picture(t, ctx, "6-rollback")
	press(kb.Enter)
	until(t, ctx, has("said", "asked ada@bastion-1 to rollback"))
	if p.did.String() != "pause, rollback" {
		t.Errorf("did %s", p.did)
	}
	press(kb.Tab)
	focus("worker-001: ")
	press(kb.ArrowRight)
	focus("worker-002: ")
	press(kb.End)
	focus("worker-005: ")
	press(kb.ArrowUp)
	press(kb.Enter)
	until(t, ctx, "document.getElementById('dialog').open && "+has("dialoghead", "worker-00"))
	until(t, ctx, has("detail", "start or end on this node"))
	picture(t, ctx, "7-node")
	press(kb.Escape)
	until(t, ctx, "!document.getElementById('dialog').open && (document.activeElement.getAttribute('aria-label') || "+
		"'').startsWith('worker-00')")
	for range 8 { // past the timeline and the journal
		if press(kb.Tab); get(t, ctx, chromedp.Evaluate[bool]("document.activeElement.tagName === 'SUMMARY'")) {
			break
		}
	}
	press(kb.Enter)
	until(t, ctx,
		"document.querySelector('#plan details').open && document.querySelectorAll('#plan details li').length > 0")
}

// people is a gate with the tokens of people, as the API server would know them.
type people struct {
	lock  sync.Mutex
	knows map[string]string // users by their tokens
	feeds map[string]*web.Feed
	names []string // newest first
	did   *acts
	slow  chan struct{} // nodes are told of once it is closed
	full  bool          // others look at so many migrations that this one has no feed
}

func (*people) Ours(*http.Request) *web.Refused { return nil }

func (p *people) View(r *http.Request, migration string) (*web.View, error) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if slow := p.slow; slow != nil && r.URL.Path == "/node" {
		p.lock.Unlock()
		<-slow
		p.lock.Lock()
	}
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	user := p.knows[token]
	switch {
	case token == "":
		return nil, &web.Refused{Code: http.StatusUnauthorized, Text: "Sign in.", SignIn: true}
	case user == "":
		return nil, &web.Refused{Code: http.StatusUnauthorized, Text: "The API server does not accept this token.",
			SignIn: true}
	case user == "eve":
		return nil, &web.Refused{Code: http.StatusForbidden,
			Text: "eve may not get migrations.\nAn administrator grants it: theseus rights look", SignIn: true}
	}
	if migration == "" {
		migration = p.names[0]
	}
	if p.feeds[migration] == nil {
		return nil, &web.Refused{Code: http.StatusNotFound,
			Text: "There is no migration " + migration + " in this cluster."}
	}
	if p.full && r.URL.Path == "/plan" {
		return &web.View{Name: migration, User: user, Others: p.names, Actions: approves{p.did}}, nil
	} else if p.full {
		return nil, &web.Refused{Code: http.StatusServiceUnavailable, Text: "Users have 3 other migrations open"}
	}
	check := func(context.Context) error {
		p.lock.Lock()
		defer p.lock.Unlock()
		if p.knows[token] == "" {
			return &web.Refused{Code: http.StatusUnauthorized, Text: "The API server does not accept this token.",
				SignIn: true}
		}
		return nil
	}
	return &web.View{Feed: p.feeds[migration], User: user, Others: p.names, Actions: approves{p.did}, Check: check}, nil
}

// approves are the actions of a person who may approve.
type approves struct{ *acts }

func (approves) Names() []string { return []string{"approve"} }

func (a approves) Question(context.Context, string) (web.Question, error) {
	return web.Question{Text: "plan:    sha256-of-the-plan\nIt deletes:\n  nothing", Word: "calico", Plan: "hash"}, nil
}

// TestSignIn: without a mouse, a person signs in, reads the plan's hash, approves, looks at another migration, which is
// withdrawn, and signs out. The token stays in the tab's memory, and is asked for again once it has expired. What was
// asked for before shows no more.
func TestSignIn(t *testing.T) {
	ctx, r := browser(t), webtest.New(t, 5)
	gate := &people{knows: map[string]string{"good": "ann", "poor": "eve"},
		feeds: map[string]*web.Feed{r.Plan.Name: web.NewFeed(r.Plan)}, names: []string{r.Plan.Name}, did: &acts{}}
	older := *r.Plan
	older.Name = "an-older-one"
	gate.feeds[older.Name], gate.names = web.NewFeed(&older), append(gate.names, older.Name)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	page := web.Serve(gate, nil)
	page.CheckEvery = 100 * time.Millisecond
	server := &http.Server{Handler: page}
	go server.Serve(listener)            //nolint:errcheck // ends with the test
	t.Cleanup(func() { server.Close() }) //nolint:errcheck
	shown := 0
	for _, at := range []time.Duration{29, 30} { // what is measured now shows between two times
		shown = r.Show(gate.feeds[r.Plan.Name], shown, r.Begin.Add(at*time.Second))
	}
	press := func(keys string) { t.Helper(); do(t, ctx, chromedp.KeyEvent(keys)) }
	at := "http://" + listener.Addr().String() + "/"
	// A token of Kubernetes in an address would be in the browser's history: it is not taken.
	do(t, ctx, chromedp.Navigate(at+"#good"))
	until(t, ctx, "!document.getElementById('signin').hidden && document.activeElement.id === 'token'")
	until(t, ctx, "!document.getElementById('verdict').checkVisibility() && "+
		"document.getElementById('refused').textContent === ''")
	picture(t, ctx, "8-sign-in")
	for token, says := range map[string]string{"bad": "does not accept this token",
		"poor": "eve may not get migrations", "not a token": "it has spaces"} {
		press(token)
		press(kb.Enter)
		until(t, ctx, has("refused", says)+
			" && document.activeElement.id === 'token' && document.getElementById('token').value === ''")
	}
	gate.lock.Lock()
	gate.full = true
	gate.lock.Unlock()
	press("Bearer good")
	press(kb.Enter)
	until(t, ctx, has("stale", "Users have 3 other migrations open")+" && "+has("name", r.Plan.Name)+
		" && document.querySelectorAll('#buttons button').length === 1 && "+
		"!document.querySelector('#buttons button').disabled")
	gate.lock.Lock()
	gate.full = false
	gate.lock.Unlock()
	until(t, ctx, "document.querySelectorAll('#buttons button').length === 1 && "+
		"document.querySelectorAll('#plan details').length > 0")
	until(t, ctx, has("user", "Signed in as ann")+" && document.getElementById('signin').hidden && "+
		has("now", "Nothing is being lost"))
	until(t, ctx, "document.cookie === '' && sessionStorage.length === 0 && localStorage.length === 0 && "+
		"document.querySelectorAll('#others option').length === 2")
	picture(t, ctx, "9-signed-in")
	focus := func(want string) {
		t.Helper()
		for range 60 { // past the end of the page
			if get(t, ctx, chromedp.Evaluate[bool](
				fmt.Sprintf("(document.activeElement.id || document.activeElement.textContent) === %q", want))) {
				return
			}
			press(kb.Tab)
		}
		t.Fatalf("Tab does not come to %s", want)
	}
	focus("Approve")
	press(kb.Enter)
	until(t, ctx, "document.activeElement.id === 'word' && "+has("dialoghead", "Approve "+r.Plan.Name+"?")+" && "+
		has("detail", "sha256-of-the-plan"))
	picture(t, ctx, "10-approve")
	press("calic")
	press(kb.Enter)
	until(t, ctx, "document.querySelector('#detail button').disabled && document.getElementById('dialog').open")
	press("o")
	press(kb.Enter)
	until(t, ctx, has("said", "to approve"))
	if gate.did.String() != "approve" {
		t.Errorf("did %s", gate.did)
	}
	do(t, ctx, chromedp.Evaluate[chromedp.Void]("document.getElementById('others').focus()"))
	press(kb.ArrowDown)
	until(t, ctx, has("name", "an-older-one")+" && "+has("now", "Nothing is measured yet")+" && location.search === "+
		"'?migration=an-older-one' && document.querySelectorAll('#buttons button').length === 1")
	gate.lock.Lock()
	gate.feeds[older.Name].Withdraw()
	delete(gate.feeds, older.Name)
	gate.names = gate.names[:1]
	gate.lock.Unlock()
	until(t, ctx, has("stand", "withdrawn")+" && document.querySelector('#buttons button').disabled && "+
		"document.querySelectorAll('#others option').length === 2")
	do(t, ctx, chromedp.Evaluate[chromedp.Void]("document.getElementById('others').focus()"))
	press(kb.ArrowUp)
	until(t, ctx, has("name", r.Plan.Name)+" && document.querySelectorAll('#waves button').length === 5")
	gate.lock.Lock()
	delete(gate.knows, "good") // it expires
	gate.knows["later"] = "ann"
	gate.lock.Unlock()
	until(t, ctx, has("refused", "does not accept this token")+
		" && document.activeElement.id === 'token' && !document.getElementById('waves').checkVisibility()")
	do(t, ctx, chromedp.Navigate(at+"?migration=an-older-one"))
	until(t, ctx, "document.activeElement.id === 'token' && document.getElementById('refused').textContent === ''")
	press("later")
	press(kb.Enter)
	until(t, ctx, has("user", "Signed in as ann")+" && document.querySelectorAll('#waves button').length === 5")
	until(t, ctx, has("said", "There is no migration an-older-one in this cluster. This is the latest one.")+" && "+
		has("name", r.Plan.Name)+" && location.search === ''")
	slow := make(chan struct{})
	gate.lock.Lock()
	gate.slow = slow
	gate.lock.Unlock()
	do(t, ctx, chromedp.Evaluate[chromedp.Void]("document.querySelector('#waves button').click()"))
	focus("signout")
	press(kb.Enter)
	until(t, ctx, "document.activeElement.id === 'token'")
	close(slow)
	until(t, ctx, "performance.getEntriesByType('resource').some(function (one) { return one.name.includes('/node?') "+
		"&& one.responseEnd > 0; })")
	do(t, ctx, chromedp.Evaluate[chromedp.Void]("setTimeout(function () { window.later = true; }, 200)"))
	until(t, ctx, "window.later && !document.getElementById('dialog').open")
	until(t, ctx, "document.activeElement.id === 'token' && document.getElementById('waves').textContent === '' && "+
		"document.getElementById('refused').textContent === ''")
}
