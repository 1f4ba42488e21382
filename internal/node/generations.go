package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// flushFile is the parameter that raises the generation of a namespace's routes by one when it is written.
const flushFile = "net/ipv4/route/flush"

// generations is by how much outrun raises the node's number. A pod's own grows by one with each change of its routes,
// addresses and rules: by a few dozen in most, moves included.
const generations = 4096

// outrun raises the generation of the node's routes past those of its pods, before an interface of theirs goes.
//
// The kernel leaves routes of an interface that goes, where sockets still hold them, to its blackhole device, and from
// then on asks whether their generation is that of the initial namespace, no longer their own's (rt_flush_dev and
// rt_is_expired in net/ipv4/route.c of Linux 6.18). Where it happens to be, a socket that had nothing to send since the
// flip goes on with a route into nothing. A node's namespace is the initial one, unless the node is a container.
func (n *Node) outrun() error {
	file, err := os.OpenFile(filepath.Join(n.Sys, flushFile), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	for range generations {
		if _, err := file.WriteAt([]byte("1"), 0); err != nil {
			return errors.Join(fmt.Errorf("raise the generation of routes: %w", err), file.Close())
		}
	}
	return file.Close()
}
