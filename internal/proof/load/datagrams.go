package load

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/theseus-cni/theseus/internal/proof/probe"
)

// small is the size of a datagram's payload, in bytes.
const small = 64

// receiveBuffer is the size of a socket's buffer in bytes: enough for a tenth of a second at the highest rate.
const receiveBuffer = 4 << 20

// echoes sends datagrams to a responder for the flow's time, and waits for the last answers. It ends early with ctx.
type echoes struct {
	*flow
	conn     net.Conn
	question *probe.Payload
	receiver sync.WaitGroup
}

// startEchoes begins to send. end waits until it has ended.
func startEchoes(ctx context.Context, target string, rate int, lasts time.Duration) (e *echoes, end func(), err error) {
	conn, err := net.Dial("udp", target)
	if err != nil {
		return nil, nil, err
	}
	conn.(*net.UDPConn).SetReadBuffer(receiveBuffer) //nolint:errcheck // the system's limit is enough for most
	e = &echoes{flow: newFlow(rate, lasts), conn: conn}
	e.question = probe.NewPayload(small, rand.Uint32(), e.begin)
	e.receiver.Go(e.receive)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		e.send(ctx, e.ask)
	}()
	return e, func() {
		<-sent
		for until := time.Now().Add(timeout); !e.complete() && time.Now().Before(until); {
			time.Sleep(5 * time.Millisecond)
		}
		conn.Close()
		e.receiver.Wait()
	}, nil
}

func (e *echoes) ask(i int) {
	data := e.question.Fill(uint64(i), e.due(i))
	_, err := e.conn.Write(data)
	if errors.Is(err, syscall.ECONNREFUSED) { // the answer to an earlier one: this one was not sent yet
		_, err = e.conn.Write(data)
	}
	if err != nil {
		e.failed(err)
	}
}

func (e *echoes) receive() {
	buffer := make([]byte, small+1)
	for {
		n, err := e.conn.Read(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			e.failed(err)
			continue
		}
		if seq, ok := e.question.Seq(buffer[:n]); ok && seq < uint64(len(e.micros)) {
			e.answered(int(seq))
		}
	}
}
