package node

import (
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/theseus-cni/theseus/internal/step"
	"github.com/theseus-cni/theseus/internal/step/adoption"
)

// How a pod's own flows are measured.
const (
	gapInterval = time.Millisecond
	gapControl  = 200 * time.Millisecond // before the move
	gapAfter    = 2 * time.Second        // for the last answers, at most: a busy node sends them late
)

// gapProbe sends datagrams from the pod's namespace to the node, which sends them back.
type gapProbe struct {
	pod, host *net.UDPConn
	sent      atomic.Int64
	stop      chan struct{}
	done      sync.WaitGroup
	moveBegan time.Time

	mu       sync.Mutex
	received map[int64]bool
	arrivals []time.Time
}

// startGap begins to measure, and returns when the control window is over; nil when the pod may not talk to its
// node, or gets no answer.
func (h *hands) startGap(record *adoption.Record) *gapProbe {
	source := net.ParseIP(record.HostSource)
	if source == nil || h.n.hasty {
		return nil
	}
	host, err := net.ListenUDP("udp4", &net.UDPAddr{IP: source})
	if err != nil {
		return nil
	}
	p := &gapProbe{host: host, stop: make(chan struct{}), received: map[int64]bool{}}
	err = h.inside(record, func(in *space) error {
		return in.do(func() (err error) { // the socket stays in the namespace
			p.pod, err = net.DialUDP("udp4", nil, host.LocalAddr().(*net.UDPAddr))
			return err
		})
	})
	if err != nil {
		_ = host.Close()
		return nil
	}
	p.done.Go(p.echo)
	p.done.Go(p.receive)
	p.done.Go(p.send)
	time.Sleep(gapControl)
	p.moveBegan = time.Now()
	p.mu.Lock()
	answers := len(p.arrivals)
	p.mu.Unlock()
	if answers < 2 {
		p.end()
		return nil
	}
	return p
}

// finish ends the measurement. The flip was over at the given time; none is zero.
func (p *gapProbe) finish(flip time.Time) *step.AdoptGap {
	sent := p.sent.Load() // what was sent by now has its time to come back
	for deadline := time.Now().Add(gapAfter); p.missing(sent) > 0 && time.Now().Before(deadline); {
		time.Sleep(10 * gapInterval)
	}
	over := time.Now()
	p.end()
	got := &step.AdoptGap{Interval: step.Duration(gapInterval), Sent: int(sent), Lost: p.missing(sent)}
	last := p.arrivals[0]
	for _, at := range append(p.arrivals, over) { // a silence that lasts counts too
		gap := step.Duration(at.Sub(last))
		if at.Before(p.moveBegan) {
			got.Control = max(got.Control, gap)
		} else {
			got.Longest = max(got.Longest, gap)
		}
		if !last.After(flip) && at.After(flip) {
			got.AtFlip = gap
		}
		last = at
	}
	return got
}

// missing counts which of the first datagrams have not come back.
func (p *gapProbe) missing(sent int64) (count int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for seq := range sent {
		if !p.received[seq] {
			count++
		}
	}
	return count
}

func (p *gapProbe) end() {
	close(p.stop)
	_ = p.pod.Close()
	_ = p.host.Close()
	p.done.Wait()
}

func (p *gapProbe) send() {
	tick := time.NewTicker(gapInterval)
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-tick.C:
			_, _ = p.pod.Write(binary.BigEndian.AppendUint64(nil, uint64(p.sent.Load()))) // what cannot be sent is lost
			p.sent.Add(1)
		}
	}
}

func (p *gapProbe) echo() {
	var data [64]byte
	for {
		n, from, err := p.host.ReadFromUDP(data[:])
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, _ = p.host.WriteToUDP(data[:n], from)
		}
	}
}

func (p *gapProbe) receive() {
	var data [64]byte
	for {
		n, err := p.pod.Read(data[:])
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || n != 8 {
			continue
		}
		p.mu.Lock()
		p.received[int64(binary.BigEndian.Uint64(data[:]))] = true
		p.arrivals = append(p.arrivals, time.Now())
		p.mu.Unlock()
	}
}
