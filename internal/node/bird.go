package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/bgp"
)

const (
	// birdDir is where Calico's BIRDs, one for each family, have their control sockets.
	birdDir = "run/calico"
	// birdPatience is how long a BIRD may take to answer.
	birdPatience = 5 * time.Second
	// birdMost is how much of an answer is read: a session takes about 1 KiB.
	birdMost = 16 << 20
)

// bird asks the BIRDs of this node for their sessions; nil when none was ever here.
func (n *Node) bird(ctx context.Context) *cluster.BIRD {
	var found *cluster.BIRD
	for _, name := range []string{"bird.ctl", "bird6.ctl"} {
		sessions, err := askBIRD(ctx, filepath.Join(n.Root, birdDir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if found == nil {
			found = &cluster.BIRD{}
		}
		if err != nil {
			found.Down = strings.TrimPrefix(fmt.Sprintf("%s; %s: %v", found.Down, name, err), "; ")
		}
		found.Sessions = append(found.Sessions, sessions...)
	}
	return found
}

// BGP is what this node's BIRD and kernel say of BGP; nil when no BIRD was ever here. It does not wait for a verb.
func (n *Node) BGP(ctx context.Context) *v1alpha1.BGP {
	bird := n.bird(ctx)
	if bird == nil {
		return nil
	}
	said := &v1alpha1.BGP{Down: bird.Down, Up: bgp.Up(bird)}
	routes, err := routesByProtocol()
	if err != nil && said.Down == "" {
		said.Down = err.Error()
	}
	said.Routes = routes["bird"]
	return said
}

func askBIRD(ctx context.Context, socket string) ([]cluster.BGPSession, error) {
	if _, err := os.Stat(socket); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, birdPatience)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(conn, "show protocols all\n"); err != nil {
		return nil, err
	}
	var answer strings.Builder
	lines := bufio.NewScanner(io.LimitReader(conn, birdMost))
	for lines.Scan() {
		line := lines.Text()
		answer.WriteString(line + "\n")
		if strings.HasPrefix(line, "0000") || strings.HasPrefix(line, "8") || strings.HasPrefix(line, "9") {
			break
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	return bgp.ParseBIRD(answer.String())
}
