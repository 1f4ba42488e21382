package migration

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// page is what the live page of theseus web is told of a run, as a browser reads it.
type page struct {
	process *rigtest.Process
	ended   chan struct{}

	mu    sync.Mutex
	now   pageNow
	tones map[string]bool // all that were shown
	lines int             // of the journal
	away  bool            // it said that it could not read the cluster
}

type pageNow struct {
	Tone, Loss, Stand string
	Over              bool
	DoneNodes         int
	Since             time.Time
}

// openPage starts theseus web and reads its page until close.
func openPage(t *testing.T, rig *scenario.Rig) *page {
	t.Helper()
	p := &page{process: rigtest.Start(t, rig, "onlooker", "web"), ended: make(chan struct{}), tones: map[string]bool{}}
	p.process.Until("open this address")
	address, secret, found := strings.Cut(strings.Fields(p.process.Said())[0], "/#")
	if !found {
		t.Fatalf("theseus web printed no address:\n%s", p.process.Said())
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"/feed", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+secret)
	answer, err := http.DefaultClient.Do(request)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("GET /feed: %v %v", answer, err)
	}
	go func() {
		defer close(p.ended)
		defer answer.Body.Close()
		events := bufio.NewScanner(answer.Body)
		events.Buffer(nil, 64<<20)
		for events.Scan() {
			if data, ok := strings.CutPrefix(events.Text(), "data: "); ok {
				p.take(t, []byte(data))
			}
		}
	}()
	return p
}

func (p *page) take(t *testing.T, data []byte) {
	var delta struct {
		Now   *pageNow
		Lines []json.RawMessage
	}
	if err := json.Unmarshal(data, &delta); err != nil {
		t.Errorf("the page was told %q: %v", data, err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines += len(delta.Lines)
	if delta.Now != nil {
		p.now = *delta.Now
		p.tones[p.now.Tone] = true
		p.away = p.away || !p.now.Since.IsZero()
	}
}

// close waits until the page says that the run is over, ends theseus web, and demands that the page
// told the end, on all nodes, with what was measured.
func (p *page) close(t *testing.T, nodes int) {
	t.Helper()
	over := func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.now.Over && p.now.Tone != "none" // the last results are read after the last record
	}
	for deadline := time.Now().Add(2 * time.Minute); !over() && time.Now().Before(deadline); {
		time.Sleep(100 * time.Millisecond)
	}
	p.process.Kill()
	<-p.ended
	t.Logf("the page: %+v; %d lines; tones %v; could not read the cluster at times: %v",
		p.now, p.lines, p.tones, p.away)
	if !p.now.Over || p.now.DoneNodes != nodes || p.lines == 0 || p.now.Tone == "none" || !p.now.Since.IsZero() {
		t.Error("the page does not show how the run ended, and on all nodes")
	}
}
