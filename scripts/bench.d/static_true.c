/* The smallest program that can be launched: no C library, no loader, three instructions. The rest of a launch's time is
 * the launcher's and the kernel's. */
void _start(void)
{
#if defined(__x86_64__)
    __asm__ volatile("mov $231, %eax\n xor %edi, %edi\n syscall");
#elif defined(__aarch64__)
    __asm__ volatile("mov x8, #94\n mov x0, #0\n svc #0");
#else
#error "static_true: write the exit_group system call of this machine here"
#endif
}
