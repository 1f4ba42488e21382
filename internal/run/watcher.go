package run

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/theseus-cni/theseus/internal/cluster/kube"
)

// Watcher has the evidence of a run that another process carries out: what is in the folder of the run on this machine,
// and what the probes have reported since the watching began. Of several watchers on one machine, one keeps evidence.
type Watcher struct {
	// Dir is the folder of the run; evidence is kept there too. Without one it is not kept.
	Dir  string
	View View

	evidence *kube.Evidence
	pace     pace
	lock     *os.File // while this process is the one that keeps evidence
	unkept   string   // the last warning that evidence cannot be kept
}

// Look reads the current reports, and counts, shows and keeps all evidence if enough has changed. It is cheap enough to
// call once a second.
func (w *Watcher) Look(ctx context.Context, actor *kube.Actor) {
	if w.evidence == nil {
		w.begin()
	}
	begun := time.Now()
	if w.evidence.Collect(ctx, actor) == nil && w.pace.due(begun, w.evidence) {
		w.show(begun)
	}
}

// Close shows and keeps what was read and is not shown or kept yet.
func (w *Watcher) Close() {
	if w.evidence != nil && w.pace.pending(w.evidence) {
		w.show(time.Now())
	}
	if w.lock != nil {
		w.lock.Close()
		w.lock = nil
	}
}

// begin reads what is in the folder of the run.
func (w *Watcher) begin() {
	w.evidence = kube.NewEvidence(kube.Collected{})
	if w.Dir == "" {
		return
	}
	before, err := read(filepath.Join(w.Dir, EvidenceFile))
	if err != nil {
		w.View.Say("warning: earlier evidence on this machine cannot be read: " + err.Error())
	}
	w.evidence.Merge(before)
	if w.keeps() {
		return
	}
	if before, err = read(filepath.Join(w.Dir, WatchedFile)); err != nil {
		w.View.Say("warning: the evidence that another `theseus watch` keeps cannot be read: " + err.Error())
	}
	w.evidence.Merge(before)
}

// keeps reports whether this process is the one that keeps evidence. It is if no other one is, and then continues with
// what others have kept.
func (w *Watcher) keeps() bool {
	if w.lock != nil {
		return true
	}
	lock, err := os.OpenFile(filepath.Join(w.Dir, WatchedFile+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return true // what is written then says why not
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		lock.Close()
		return false
	}
	w.lock = lock
	w.evidence.Merge(takeOver(filepath.Join(w.Dir, WatchedFile), w.View.Say))
	return true
}

// show counts and shows all evidence, and keeps it.
func (w *Watcher) show(begun time.Time) {
	keeps := w.Dir != "" && w.keeps()
	all := w.evidence.Document()
	if len(all.Paths) == 0 {
		return
	}
	seen, kept := SeenIn(all), true
	if keeps {
		// only the run has them
		all.Baseline, all.State, all.Events, all.EventsDropped, all.Looks = nil, nil, nil, 0, nil
		kept = save(filepath.Join(w.Dir, WatchedFile), all, w.View.Say, &w.unkept)
	}
	w.pace.did(begun, time.Now(), kept)
	w.View.Evidence(seen)
}
