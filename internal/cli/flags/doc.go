// Package flags has the command `theseus flags`; each command below it is a package below this one.
package flags
