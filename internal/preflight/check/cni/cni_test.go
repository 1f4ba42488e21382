package cni

import (
	"testing"

	"github.com/theseus-cni/theseus/internal/preflight/check/checktest"
)

func TestAutodetection(t *testing.T) { checktest.Run(t, Autodetection()) }

func TestClash(t *testing.T) { checktest.Run(t, Clash()) }

func TestConfPresent(t *testing.T) { checktest.Run(t, ConfPresent()) }

func TestFolders(t *testing.T) { checktest.Run(t, Folders()) }

func TestLeftover(t *testing.T) { checktest.Run(t, Leftover()) }
func TestNever(t *testing.T)    { checktest.Run(t, Never()) }
func TestTraces(t *testing.T)   { checktest.Run(t, Traces()) }
func TestUnknown(t *testing.T)  { checktest.Run(t, Unknown()) }
func TestHalfWay(t *testing.T)  { checktest.Run(t, HalfWay()) }
