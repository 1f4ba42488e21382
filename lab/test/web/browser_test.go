package web

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
)

// chromium is where lab/install.sh unpacks Debian's chromium. The module test/web starts it the same way; neither
// module can import the other's packages.
const chromium = "/usr/local/lib/theseus-lab/chromium"

// patience is how long a single request to the browser may take on a busy machine.
const patience = time.Minute

// reader is a person who looks at the live page in a browser.
type reader struct {
	t   *testing.T
	tab context.Context
}

// open shows an address in a browser of its own, which ends with the test. An error of the page's script fails the
// test.
func open(t *testing.T, address string) *reader {
	t.Helper()
	if _, err := os.Stat(chromium); err != nil {
		t.Fatalf("no chromium: %v (lab/install.sh unpacks it)", err)
	}
	fonts := filepath.Join(t.TempDir(), "fonts.conf")
	if err := os.WriteFile(fonts, []byte("<fontconfig><dir>"+chromium+"/usr/share/fonts</dir><cachedir>"+t.TempDir()+
		"</cachedir><match target=\"pattern\"><edit name=\"family\" mode=\"append_last\"><string>Liberation "+
		"Sans</string></edit></match></fontconfig>"), 0o600); err != nil {
		t.Fatal(err)
	}
	lib := filepath.Join(chromium, "usr/lib/x86_64-linux-gnu")
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(filepath.Join(chromium, "usr/lib/chromium/chromium")), chromedp.NoSandbox,
		chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()), chromedp.WindowSize(1280, 1800),
		chromedp.WSURLReadTimeout(patience),
		chromedp.Env("LD_LIBRARY_PATH="+lib+":"+filepath.Join(lib, "pulseaudio"), "FONTCONFIG_FILE="+fonts))
	allocated, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	tab, cancel := chromedp.NewContext(allocated)
	t.Cleanup(cancel)
	// the browser lives as long as this call's context
	if err := chromedp.Do(tab, chromedp.Navigate("about:blank")); err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Listen(tab, func(event any) {
		if e, ok := event.(*runtime.EventExceptionThrown); ok {
			t.Errorf("the page's script failed: %s",
				(&chromedp.ExceptionError{ExceptionDetails: e.ExceptionDetails}).Error())
		}
	}); err != nil {
		t.Fatal(err)
	}
	r := &reader{t, tab}
	get(r, chromedp.Navigate(address))
	return r
}

func get[T any](r *reader, action chromedp.Action[T]) T {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.tab, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, action)
	if err != nil {
		r.t.Fatal(err)
	}
	return value
}

// view is the text of the page, as a person or a screen reader finds it.
type view struct {
	Headline string            // whether anything is being lost
	Summary  string            // the state of the run, with the headline
	Step     string            // the section "Current step"
	Cells    map[string]string // the state of every node, by the names of their buttons
	Waves    map[string]string // the line of the wave in which a node is
	Timeline string
	Dialog   string // the open dialog
}

// read reads the page. Sections have the names that their headings give them.
const read = `(() => {
	const section = name => [...document.querySelectorAll('section')].find(one => one.checkVisibility() &&
		document.getElementById(one.getAttribute('aria-labelledby')).textContent === name);
	const text = one => one ? one.textContent : '';
	const cells = {}, waves = {}, nodes = section('Nodes');
	for (const cell of nodes ? nodes.querySelectorAll('button') : []) {
		const [node, state] = cell.getAttribute('aria-label').split(': ');
		cells[node] = state;
		waves[node] = text(cell.closest('.wave'));
	}
	return {Headline: text([...document.querySelectorAll('h1')].find(one => one.checkVisibility())),
		Summary: text(document.querySelector('header')), Step: text(section('Current step')), Cells: cells,
		Waves: waves, Timeline: text(section('Timeline')), Dialog: text(document.querySelector('dialog[open]'))};
})()`

// until waits until the page shows something, and writes a picture of it into the test's folder (go test -artifacts).
func (r *reader) until(picture string, limit time.Duration, shows func(view) bool) {
	r.t.Helper()
	var now view
	holds := false
	defer func() {
		if !holds {
			r.picture("not " + picture)
			r.t.Logf("the page shows %+v", now)
		}
	}()
	rigtest.Within(r.t, limit, "the page shows "+picture, func() bool {
		now = get(r, chromedp.Evaluate[view](read))
		holds = shows(now)
		return holds
	})
	r.picture(picture)
}

func (r *reader) picture(name string) {
	r.t.Helper()
	file := filepath.Join(r.t.ArtifactDir(), strings.ReplaceAll(name, " ", "-")+".png")
	if err := os.WriteFile(file, get(r, chromedp.FullScreenshot(100)), 0o600); err != nil {
		r.t.Fatal(err)
	}
	r.t.Logf("the page shows %s: %s", name, file)
}

// click clicks on a node's cell.
func (r *reader) click(node string) {
	r.t.Helper()
	get(r, chromedp.Click(chromedp.CSS(`button[aria-label^="`+node+`: "]`)))
}

// escape presses the key.
func (r *reader) escape() {
	r.t.Helper()
	get(r, chromedp.KeyEvent(kb.Escape))
}
