/* Debian's Rust for aarch64 is made for glibc, which has names of their own for functions with offsets of 64 bits. musl,
 * with which a server is linked that needs no files of the other system, has such functions alone, under plain names. */
#define PLAIN(name) __asm__(".globl " #name "64\n" #name "64: b " #name "\n")

PLAIN(fstat);
PLAIN(lseek);
PLAIN(mmap);
PLAIN(open);
PLAIN(stat);
