package probe

import (
	"context"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// A second responder is asked while the first one is silent: from secondAfter on, or at the next check if a probe was
// refused, then every secondEvery. Each question has secondTimeout, as a stalled node answers once it runs again.
const (
	secondLook    = 50 * time.Millisecond
	secondAfter   = 200 * time.Millisecond
	secondEvery   = 250 * time.Millisecond
	secondTimeout = 10 * time.Second
)

// openSecond is an exchange with a path's second responder, like the path's own but from other ports; nil if it has
// none.
func (r *Runner) openSecond(l *line) exchange {
	payload, ports := NewPayload(l.path.Size, r.run, r.base), new(sourcePorts)
	switch {
	case l.path.Second == "":
		return nil
	case l.path.Protocol == v1alpha1.UDP || l.path.Protocol == v1alpha1.UDPNew:
		return udpExchange(l.path.Second, payload, ports)
	case l.path.Protocol == v1alpha1.TCP || l.path.Protocol == v1alpha1.TCPNew:
		return tcpExchange(l.path.Second, payload, ports)
	}
	return nil
}

// seconds asks the second responders of paths that are silent, until the runner is closed.
func (r *Runner) seconds() {
	ticker := time.NewTicker(secondLook)
	defer ticker.Stop()
	for seq := uint64(0); ; seq++ {
		select {
		case <-r.ctx.Done():
			return
		case <-ticker.C:
		}
		for _, l := range r.silent(time.Now()) {
			r.tasks.Go(func() { r.askSecond(l, seq) })
		}
	}
}

// silent are the lines with a second responder whose target owes an answer.
func (r *Runner) silent(now time.Time) []*line {
	r.mu.Lock()
	defer r.mu.Unlock()
	var silent []*line
	for _, l := range r.active {
		if l.wire != nil && l.second != nil && now.Sub(l.asked) >= secondEvery && l.silent(now) {
			l.asked = now
			silent = append(silent, l)
		}
	}
	return silent
}

func (r *Runner) askSecond(l *line, seq uint64) {
	ctx, cancel := context.WithTimeout(r.ctx, secondTimeout)
	defer cancel()
	at := time.Now()
	if err := l.second(ctx, seq, at); err == nil {
		l.seconded(at)
	}
}
