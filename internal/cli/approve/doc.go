// Package approve is the command `theseus approve`.
package approve
