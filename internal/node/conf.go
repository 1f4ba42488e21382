package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/theseus-cni/theseus/internal/step"
)

// activate makes the staged configuration the one that the runtime picks, by one rename: at every moment
// there is exactly one answer to which network serves.
func (n *Node) activate(ctx context.Context, args step.ConfArgs) (Answer, error) {
	staged, active, err := n.confPair(args)
	if err != nil {
		return Answer{}, err
	}
	if err := n.servesFirst(args.Active); err != nil {
		return Answer{}, err
	}
	if strings.Contains(args.Staged, "/") {
		return n.fetch(ctx, args, staged, active)
	}
	if staged == nil && active == nil {
		told, err := n.folders()
		if err != nil {
			return Answer{}, err
		}
		return Answer{}, fmt.Errorf(
			"neither %s nor %s is in %s: the network's agent has not written its configuration",
			args.Staged, args.Active, told.Conf)
	}
	if staged == nil || active != nil && bytes.Equal(staged, active) {
		return Answer{Message: args.Active + " is active already"}, nil
	}
	if err := checkConf(staged); err != nil {
		return Answer{}, fmt.Errorf("%s cannot serve: %w", args.Staged, err)
	}
	return n.renameConf(args.Staged, args.Active)
}

// fetch activates what is staged in a folder. A runtime that watches its own folder (containerd) loads it again when a
// file is renamed there, and not when one is moved into it: so it gets a name there first that no runtime reads.
func (n *Node) fetch(ctx context.Context, args step.ConfArgs, staged, active []byte) (Answer, error) {
	beside := step.ConfArgs{Staged: args.Active + ".theseus", Active: args.Active}
	if staged != nil && !bytes.Equal(staged, active) {
		if err := checkConf(staged); err != nil {
			return Answer{}, fmt.Errorf("%s cannot serve: %w", args.Staged, err)
		}
		if got, err := n.renameConf(args.Staged, beside.Staged); err != nil {
			return got, err
		}
	}
	return n.activate(ctx, beside)
}

// deactivate takes the active configuration back to its staged name. It refuses to leave the runtime with
// no configuration at all, which would make the node NotReady.
func (n *Node) deactivate(_ context.Context, args step.ConfArgs) (Answer, error) {
	_, active, err := n.confPair(args)
	if err != nil {
		return Answer{}, err
	}
	if active == nil {
		return Answer{Message: args.Active + " is not active"}, nil
	}
	files, err := n.confFiles()
	if err != nil {
		return Answer{}, err
	}
	if len(files) < 2 {
		return Answer{}, fmt.Errorf("%s is the only network configuration of the node", args.Active)
	}
	return n.renameConf(args.Active, args.Staged)
}

func (n *Node) renameConf(from, to string) (Answer, error) {
	dir, err := n.inConf("")
	if err != nil {
		return Answer{}, err
	}
	if err := renameDurably(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
		return Answer{}, fmt.Errorf("rename %s to %s: %w", from, to, err)
	}
	return Answer{Changed: true, Message: from + " is now " + to}, nil
}

// confPair reads both files; nil means that a file is not there.
func (n *Node) confPair(args step.ConfArgs) (staged, active []byte, err error) {
	if args.Staged == args.Active {
		return nil, nil, fmt.Errorf("%q is both the staged and the active name", args.Active)
	}
	dir, err := n.inConf("")
	if err != nil {
		return nil, nil, err
	}
	read := func(name string) []byte {
		folder, file, deeper := strings.Cut(name, "/")
		if deeper && (name == args.Active || !isName(file)) || !isName(folder) {
			err = errors.Join(err, fmt.Errorf("%q is not a file name", name))
			return nil
		}
		content, failed := os.ReadFile(filepath.Join(dir, name))
		if failed != nil && !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, fmt.Errorf("read a network configuration: %w", failed))
		}
		if failed == nil && content == nil {
			content = []byte{}
		}
		return content
	}
	return read(args.Staged), read(args.Active), err
}

// isName says whether something names what is in a folder.
func isName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsRune(name, '/')
}

// servesFirst makes sure that nothing sorts before the name.
func (n *Node) servesFirst(active string) error {
	files, err := n.confFiles()
	if err != nil {
		return err
	}
	if len(files) > 0 && files[0] < active {
		return fmt.Errorf("%s would not be used: the runtime prefers %s", active, files[0])
	}
	return nil
}

// checkConf tells a configuration from half of one.
func checkConf(content []byte) error {
	var conf struct {
		Name    string            `json:"name"`
		Type    string            `json:"type"`
		Plugins []json.RawMessage `json:"plugins"`
	}
	if err := json.Unmarshal(content, &conf); err != nil {
		return fmt.Errorf("not JSON: %w", err)
	}
	if conf.Type == "" && len(conf.Plugins) == 0 {
		return errors.New("it names no plugin")
	}
	return nil
}
