// Package policy has the command `theseus policy`.
package policy
